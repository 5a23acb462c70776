"""Direct preference optimisation on annotated pairs (AlpacaFarm, Section 2.2 and Appendix B)."""

from ...configs.recipes import DPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.train import train
from .annotated_pairs import annotate_pairs
from .trial_settings import trials

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "annotate pairs of answers, train on them by DPO"
TRIALS = trials("dpo", {"training.dpo.beta": 3.0})


def dpo(it: Iteration, cfg: DPO) -> Checkpoint:
    """Raise the preferred answers over the others, relative to the reference policy."""
    return train(it, annotate_pairs(it, cfg))
