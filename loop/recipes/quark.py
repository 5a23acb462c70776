"""Quark: fine-tuning on the best quantile of the policy's samples (AlpacaFarm, Appendix B)."""

from ...configs.recipes import Quark
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.online_rl import train_quark
from ..stages.select_prompts import filter_variance
from .annotated_pairs import surrogate
from .trial_settings import trials

PAPER = "Quark (Lu et al., 2022), as in AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "fine-tune on the best-rewarded quarter of own samples, with a KL penalty to M_0"
TRIALS = trials("quark", {"training.quark.kl_coef": 5.0})


def quark(it: Iteration, cfg: Quark) -> Checkpoint:
    """Sample, sort by r(x, y), learn the best quantile; again with the policy so improved."""
    model = surrogate(it, cfg)  # r: the configured reward model, or one trained on pairs
    return train_quark(it, filter_variance(it, it.prompts("unlabeled"), model), model)
