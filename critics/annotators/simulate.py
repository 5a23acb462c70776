"""Seeded draws without models: a pair's annotator, its order, and the noise on its label.

AlpacaFarm (Section 3, Appendix C.1) draws the annotator of a pair uniformly from the pool, shows
the two outputs in a random order, and flips a share p_flip of the labels. Flipping is a mixture:
with probability 2 p_flip a fair coin replaces the annotator, which flips p_flip of all labels. The
coin is tossed first, so an annotator that it would overrule costs no request.

Every draw depends only on the seed and a key. Keyed on the pair, the draws of a prompt's pairs are
independent; keyed on the instruction, as in AlpacaFarm's code, they are equal. Evaluations are
always keyed on the instruction: all policies meet the same annotator and order there, so their
effect cancels in the difference.
"""

from ...stores.keys import SEED_BITS, derive_seed
from ...stores.records import SCORED, Preferred
from ..judge import Reading
from .annotator_pool import Annotator, AnnotatorPool
from .pair_verdicts import PairChoice


def assign(pool: AnnotatorPool, key: str, seed: int) -> Annotator:
    """Return the annotator of `key`; each of the pool is as likely as any other."""
    return pool.annotators[int(_uniform(seed, "annotator", key) * len(pool.annotators))]


def shown_swapped(key: str, seed: int) -> bool:
    """Whether the second output is shown first; one half of the keys."""
    return _uniform(seed, "order", key) < 1 / 2


def coin(key: str, seed: int, p_flip: float) -> Preferred | None:
    """Return the noise's verdict on `key`, or None if the annotator decides.

    `p_flip` is at most 1/2: then the coin decides everything.
    """
    if _uniform(seed, "noise", key) >= 2 * p_flip:
        return None
    return "first" if _uniform(seed, "coin", key) < 1 / 2 else "second"


def reconcile(as_given: Reading[PairChoice], swapped: Reading[PairChoice]) -> Reading[PairChoice]:
    """Return one verdict from the readings of both orders.

    If the preference depends on the order, the verdict is a tie. If one of the two is unread, the
    pair is unread for the same reason.
    """
    for reading in (as_given, swapped):
        if reading.status != SCORED:
            return reading
    one, other = as_given.value, swapped.value
    agreed = one.preferred if one.preferred == other.preferred else "tie"
    explanation = "\n\n".join(filter(None, (one.explanation, other.explanation)))
    return Reading(SCORED, PairChoice(agreed, explanation))


def _uniform(seed: int, what: str, key: str) -> float:
    """Return a number in [0, 1)."""
    return derive_seed(seed, "annotation", what, key) / 2**SEED_BITS
