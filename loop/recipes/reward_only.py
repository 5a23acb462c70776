"""Reward-only RLHF: the paper's baseline without feedback and reflection (Section 4.1)."""

from ...configs.recipes import RewardOnly
from ...stores.records import Checkpoint
from ..run.handles import JudgedRows
from .iteration import Iteration

PAPER = "RLRF (Lee et al., 2024), baseline"
SUMMARY = "pair the highest rewards with random others, no critique, train"


def reward_only(it: Iteration, cfg: RewardOnly) -> Checkpoint:
    """Positives by reward alone, negatives at random, then DPO or rejection sampling."""
    drafts = it.sample(it.varied(it.prompts(), None), n=cfg.n)  # D_y: y_i ~ pi(x)
    judged = JudgedRows(candidates=drafts, rewards=it.reward(drafts))
    if cfg.train == "rs":
        return it.train(it.demonstrate(judged, rule="top_reward", top_k=cfg.top_k))
    return it.train(it.pair(judged, rule="top_reward", top_k=cfg.top_k))
