"""FeedME: supervised fine-tuning on preferred answers (AlpacaFarm, Section 2.2)."""

from ...configs.recipes import FeedME
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.prefer import demonstrate_preferred
from ..stages.train import train
from .annotated_pairs import compare_answers
from .trial_settings import trials

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "fine-tune on the preferred answer of each annotated pair"
TRIALS = trials("sft", {"training.sft.epochs": 2.0})


def feedme(it: Iteration, cfg: FeedME) -> Checkpoint:
    """Imitate the answers that annotators preferred."""
    return train(it, demonstrate_preferred(it, *compare_answers(it, cfg)))
