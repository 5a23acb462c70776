"""GRPO: group relative policy optimisation (DeepSeekMath, Section 4.1)."""

from ...configs.recipes import GRPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.online_rl import train_grpo
from ..stages.select_prompts import filter_variance
from .trial_settings import trials

PAPER = "DeepSeekMath (Shao et al., 2024)"
SUMMARY = "reward groups of answers by critic, verifier or a model; raise those above their group"
TRIALS = trials("grpo", {"training.grpo.kl_coef": 5.0})


def grpo(it: Iteration, cfg: GRPO) -> Checkpoint:
    """Maximise (r(x, y_i) - mean) / std over groups y_1 .. y_G ~ pi(x), near M_0 (Eq. 3)."""
    prompts = filter_variance(it, it.prompts(), None)
    return train_grpo(it, prompts, rewards=cfg.rewards)
