"""Quark: fine-tuning on the best quantile of one's own samples (AlpacaFarm, Appendix B)."""

from ...configs.recipes import Quark
from ...stores.records import Checkpoint
from .annotated_pairs import surrogate
from .iteration import Iteration

PAPER = "Quark (Lu et al., 2022), as in AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "fine-tune on the best-rewarded quarter of own samples, with a KL penalty to M_0"


def quark(it: Iteration, cfg: Quark) -> Checkpoint:
    """Sample, sort by r(x, y), learn the best quantile; again with the policy so improved."""
    reward = surrogate(it, cfg)  # r: the configured reward model, or one trained on pairs
    return it.quark(it.varied(it.prompts("unlabeled"), reward), reward)
