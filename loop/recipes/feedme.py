"""FeedME: supervised fine-tuning on preferred answers (AlpacaFarm, Section 2.2)."""

from ...configs.recipes import FeedME
from ...stores.records import Checkpoint
from .iteration import Iteration

PAPER = "AlpacaFarm (Dubois et al., 2023)"
SUMMARY = "fine-tune on the preferred answer of each annotated pair"


def feedme(it: Iteration, cfg: FeedME) -> Checkpoint:
    """Imitate what annotators preferred."""
    drafts = it.sample(it.prompts("preference"), n=cfg.n)  # y_i ~ pi(x)
    return it.train(it.demonstrate_preferred(drafts, it.annotate(drafts)))
