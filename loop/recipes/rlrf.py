"""RLRF: reinforcement learning from reflective feedback (the paper's Sections 3.1 to 3.4)."""

from ...configs.recipes import RLRF
from ...stores.records import Checkpoint
from ..run.handles import JudgedRows
from ..run.iteration import Iteration
from ..stages.critique import critique
from ..stages.pair import demonstrate, pair
from ..stages.refine import best, refine
from ..stages.reward import reward
from ..stages.sample import sample
from ..stages.select_prompts import filter_variance
from ..stages.train import train
from .trial_settings import trials

PAPER = "RLRF (Lee et al., 2024)"
SUMMARY = "critique drafts, refine the promising one, pair successes with failures, train"
TRIALS = trials("dpo", {"training.dpo.beta": 3.0})


def rlrf(it: Iteration, cfg: RLRF) -> Checkpoint:
    """Fine-grained self-reflection, then DPO on success/failure pairs or rejection sampling."""
    prompts = filter_variance(it, it.prompts(), None)
    answers = sample(it, prompts, n=cfg.n)  # D_y: y_i ~ pi(x)
    feedback = critique(it, answers)  # f(x, y_i)
    rewards = reward(it, answers)  # r(x, y_i)
    judged = JudgedRows(candidates=answers, critiques=feedback, rewards=rewards)

    for number in range(1, cfg.rounds + 1):  # the paper has one round
        promising = best(answers, by=rewards)  # y~ = argmax r(x, y)
        answers = refine(  # D_z: z_j ~ pi(x, y~, f(x, y~))
            it, promising, feedback, m=cfg.m, which=cfg.refined(number), number=number
        )
        feedback, rewards = critique(it, answers), reward(it, answers)
        judged += JudgedRows(candidates=answers, critiques=feedback, rewards=rewards)

    if cfg.objective(it.number) == "rs":  # D = D_y + D_z
        return train(it, demonstrate(it, judged, rule="success", top_k=cfg.top_k))
    return train(it, pair(it, judged, rule="success_vs_failure", top_k=cfg.top_k))
