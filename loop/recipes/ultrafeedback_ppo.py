"""PPO against a reward model of graded completions (UltraFeedback, Section 3.3)."""

from ...configs.recipes import UltraFeedbackPPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.online_rl import train_ppo
from ..stages.select_prompts import filter_variance
from .graded_pairs import graded_reward

PAPER = "UltraFeedback (Cui et al., 2024)"
SUMMARY = "train a reward model on graded completions, optimise it by PPO"


def ultrafeedback_ppo(it: Iteration, cfg: UltraFeedbackPPO) -> Checkpoint:
    """Maximise r(x, y) - kl_coef * KL(pi || M_0) over the policy's own answers to new prompts."""
    model = graded_reward(it, cfg)
    return train_ppo(it, filter_variance(it, it.prompts("unlabeled"), model), model)
