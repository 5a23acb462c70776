"""Reward-only RLHF: the paper's baseline without feedback and reflection (Section 4.1)."""

from ...configs.recipes import RewardOnly
from ...stores.records import Checkpoint
from ..run.handles import JudgedRows
from ..run.iteration import Iteration
from ..stages.pair import demonstrate, pair
from ..stages.reward import reward
from ..stages.sample import sample
from ..stages.select_prompts import filter_variance
from ..stages.train import train
from .trial_settings import trials

PAPER = "RLRF (Lee et al., 2024), baseline"
SUMMARY = "pair the highest rewards with random others, no critique, train"
TRIALS = trials("dpo", {"training.dpo.beta": 3.0})


def reward_only(it: Iteration, cfg: RewardOnly) -> Checkpoint:
    """Positives by reward alone, negatives at random, then DPO or rejection sampling."""
    drafts = sample(it, filter_variance(it, it.prompts(), None), n=cfg.n)  # D_y: y_i ~ pi(x)
    judged = JudgedRows(candidates=drafts, rewards=reward(it, drafts))
    if cfg.objective(it.number) == "rs":
        return train(it, demonstrate(it, judged, rule="top_reward", top_k=cfg.top_k))
    return train(it, pair(it, judged, rule="top_reward", top_k=cfg.top_k))
