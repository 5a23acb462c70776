"""Direct preference optimisation on binarised grades, as models trained on UltraFeedback are."""

from ...configs.recipes import UltraFeedbackDPO
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.train import train
from .graded_pairs import graded_pairs

PAPER = "UltraFeedback (Cui et al., 2024)"
SUMMARY = "grade completions of several models, binarise the grades, train on the pairs by DPO"


def ultrafeedback_dpo(it: Iteration, cfg: UltraFeedbackDPO) -> Checkpoint:
    """Raise each prompt's best completion over a lesser one, relative to the reference policy."""
    return train(it, graded_pairs(it, cfg))
