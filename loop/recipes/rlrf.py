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
from ..stages.train import train
from ..stages.variance_filter import varied

PAPER = "RLRF (Lee et al., 2024)"
SUMMARY = "critique drafts, refine the promising one, pair successes with failures, train"


def rlrf(it: Iteration, cfg: RLRF) -> Checkpoint:
    """Fine-grained self-reflection, then DPO on success/failure pairs or rejection sampling."""
    prompts = varied(it, it.prompts(), None)
    drafts = sample(it, prompts, n=cfg.n)  # D_y: y_i ~ pi(x)
    feedback = critique(it, drafts)  # f(x, y_i)
    rewards = reward(it, drafts)  # r(x, y_i)

    promising = best(drafts, by=rewards)  # y~ = argmax r(x, y)
    refined = refine(  # D_z: z_j ~ pi(x, y~, f(x, y~))
        it, promising, feedback, m=cfg.m, which=cfg.refine
    )

    judged = JudgedRows(  # D = D_y + D_z
        candidates=drafts + refined,
        critiques=feedback + critique(it, refined),
        rewards=rewards + reward(it, refined),
    )
    if cfg.objective(it.number) == "rs":
        return train(it, demonstrate(it, judged, rule="success", top_k=cfg.top_k))
    return train(it, pair(it, judged, rule="success_vs_failure", top_k=cfg.top_k))
