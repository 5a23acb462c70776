"""The surrogate reward model alone (AlpacaFarm, Section 2.2); the policy stays as it is."""

from ...configs.recipes import RewardModelling
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.train import keep_policy, train_reward
from .annotated_pairs import annotate_pairs

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "train a reward model on annotated pairs"


def reward_model(it: Iteration, cfg: RewardModelling) -> Checkpoint:
    """Fit Bradley-Terry to the annotated pairs."""
    train_reward(it, annotate_pairs(it, cfg))
    return keep_policy(it)
