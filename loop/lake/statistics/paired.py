"""Changes between two measurements of the same prompts, with intervals and tests.

The interval of a mean difference is a paired bootstrap's: prompts are drawn with replacement, each
with both of its values, and those of a cluster together. Where every value is 0 or 1, McNemar's
exact test looks at the prompts that changed sides: without any effect each would be as likely to go
one way as the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean

import numpy as np

from .bootstrap import mean_interval, numbered
from .share_interval import same_change_interval

DRAWS = 2000
"""Bootstrap resamples."""
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How `n` paired values changed: `low` to `high` is the 95% interval of `difference`.

    `p_value` is that of the exact McNemar test, None if values other than 0 and 1 occur, or if
    prompts depend on one another.
    """

    n: int
    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    better: int
    worse: int
    p_value: float | None


def change(
    before: Sequence[float], after: Sequence[float], clusters: Sequence[str] | None = None
) -> Change:
    """Compare two values each of at least one prompt, in the same order.

    `clusters` name what each prompt belongs to; without them each stands alone.
    """
    differences = [new - old for old, new in zip(before, after, strict=True)]
    size = len(differences)
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    low, high = None, None
    drawn = np.arange(size) if clusters is None else numbered(clusters)
    if drawn.max() > 0:
        spread = mean_interval(differences, drawn, draws=DRAWS, seed=SEED)
        low, high = spread.low, spread.high
    sides = set(before) | set(after) <= {0.0, 1.0}
    if sides and low is not None and low == high:
        low, high = same_change_interval(low, int(drawn.max()) + 1)
    binary = sides and drawn.max() == size - 1
    return Change(
        n=size,
        before=fmean(before),
        after=fmean(after),
        difference=fmean(differences),
        low=low,
        high=high,
        better=better,
        worse=worse,
        p_value=mcnemar(better, worse) if binary else None,
    )


def mcnemar(better: int, worse: int) -> float:
    """Return McNemar's exact two-sided p-value for this many changes either way."""
    changed, fewer = better + worse, min(better, worse)
    tail = sum(comb(changed, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**changed)
