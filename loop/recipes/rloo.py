"""RLOO: REINFORCE with the other answers' mean as its baseline (Ahmadian et al., 2024)."""

from ...configs.recipes import RLOO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.online_rl import train_rloo
from ..stages.select_prompts import filter_variance
from .trial_settings import trials

PAPER = "RLOO (Ahmadian et al., 2024)"
SUMMARY = "reward k answers a prompt, raise each by how far it is above the mean of the others"
TRIALS = trials("rloo", {"training.rloo.kl_coef": 5.0})


def rloo(it: Iteration, cfg: RLOO) -> Checkpoint:
    """Maximise r(x, y_i) - beta KL against the mean of the k - 1 others, y_1 .. y_k ~ pi(x)."""
    prompts = filter_variance(it, it.prompts(), None)
    return train_rloo(it, prompts, rewards=cfg.rewards)
