"""The surrogate reward model alone (AlpacaFarm, Section 2.2); the policy stays as it is."""

from ...configs.recipes import RewardModelling
from ...stores.records import Checkpoint
from .annotated_pairs import annotated
from .iteration import Iteration

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "train a reward model on annotated pairs"


def reward_model(it: Iteration, cfg: RewardModelling) -> Checkpoint:
    """Fit Bradley-Terry to the annotated pairs."""
    it.train_reward(annotated(it, cfg))
    return it.unchanged()
