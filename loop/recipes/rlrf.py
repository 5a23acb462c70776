"""RLRF: reinforcement learning from reflective feedback (the paper's Sections 3.1 to 3.4)."""

from ...configs.recipes import RLRF
from ...stores.records import Checkpoint
from ..run.handles import JudgedRows
from .iteration import Iteration

PAPER = "RLRF (Lee et al., 2024)"
SUMMARY = "critique drafts, refine the promising one, pair successes with failures, train"


def rlrf(it: Iteration, cfg: RLRF) -> Checkpoint:
    """Fine-grained self-reflection, then DPO on success/failure pairs or rejection sampling."""
    prompts = it.varied(it.prompts(), None)
    drafts = it.sample(prompts, n=cfg.n)  # D_y: y_i ~ pi(x)
    feedback = it.critique(drafts)  # f(x, y_i)
    rewards = it.reward(drafts)  # r(x, y_i)

    promising = it.best(drafts, by=rewards)  # y~ = argmax r(x, y)
    refined = it.refine(promising, feedback, m=cfg.m)  # D_z: z_j ~ pi(x, y~, f(x, y~))

    judged = JudgedRows(  # D = D_y + D_z
        candidates=drafts + refined,
        critiques=feedback + it.critique(refined),
        rewards=rewards + it.reward(refined),
    )
    if cfg.train == "rs":
        return it.train(it.demonstrate(judged, rule="success", top_k=cfg.top_k))
    return it.train(it.pair(judged, rule="success_vs_failure", top_k=cfg.top_k))
