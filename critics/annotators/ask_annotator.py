"""Asking any annotator of a pool: by its templates, or by a prompt that was published."""

from collections.abc import Sequence

from ..guard import BARE, GuardKey
from ..judge import Question
from .annotator_pool import AnyAnnotator, PublishedAnnotator
from .comparison import Comparison, ask
from .pair_verdicts import PairChoice
from .published_prompts import ask_published


def ask_annotator(
    annotator: AnyAnnotator, comparisons: Sequence[Comparison], key: GuardKey = BARE
) -> Question[PairChoice]:
    """Return what to ask `annotator` about `comparisons`; a published prompt has no guard.

    Raises:
        ValueError: if there are none, more than its prompts hold, two of one key, or of a published
            prompt pairs with an input beside pairs without.
    """
    if isinstance(annotator, PublishedAnnotator):
        return ask_published(annotator, comparisons)
    return ask(annotator, comparisons, key)
