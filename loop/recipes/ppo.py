"""PPO: proximal policy optimisation against a surrogate reward (AlpacaFarm, Section 2.2)."""

from ...configs.recipes import PPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.online_rl import train_ppo
from ..stages.select_prompts import filter_variance
from .annotated_pairs import surrogate
from .trial_settings import trials

PAPER = "AlpacaFarm (Dubois et al., 2023), PPO"
SUMMARY = "optimise a reward model trained on annotated pairs, with a KL penalty to M_0"
TRIALS = trials("ppo", {"training.ppo.kl_coef": 5.0})


def ppo(it: Iteration, cfg: PPO) -> Checkpoint:
    """Maximise r(x, y) - kl_coef * KL(pi || M_0) over the policy's own answers to new prompts."""
    model = surrogate(it, cfg)  # r: the configured reward model, or one trained on pairs
    return train_ppo(it, filter_variance(it, it.prompts("unlabeled"), model), model)
