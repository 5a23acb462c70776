"""What changed between two measurements of the same prompts, and how sure that is.

The interval of a mean difference is a paired bootstrap's: prompts are drawn with replacement, each
with both of its values. Where every value is 0 or 1, McNemar's exact test looks at the prompts that
changed sides: without any effect each would be as likely to go one way as the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import polars as pl

RESAMPLES = 2000
LEVEL = 0.95
SEED = 0
BATCH = 5_000_000
"""How many values are drawn at once, so that memory stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How `n` paired values changed: `low` to `high` is the 95% interval of `difference`.

    `p_value` is that of the exact McNemar test, None where values are other than 0 and 1.
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


def change(before: Sequence[float], after: Sequence[float]) -> Change:
    """Compare two values each of at least one prompt, in the same order."""
    old, new = pl.Series(before, dtype=pl.Float64), pl.Series(after, dtype=pl.Float64)
    differences = new - old
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    low, high = interval(differences)
    binary = set(before) | set(after) <= {0.0, 1.0}
    return Change(
        n=len(old),
        before=_mean(old),
        after=_mean(new),
        difference=_mean(differences),
        low=low,
        high=high,
        better=better,
        worse=worse,
        p_value=mcnemar(better, worse) if binary else None,
    )


def interval(differences: pl.Series) -> tuple[float | None, float | None]:
    """Return the bootstrap interval of a mean; of a single value there is none."""
    size = len(differences)
    if size < 2:  # noqa: PLR2004 -- one value says nothing of how values differ
        return None, None
    at_once = max(1, min(RESAMPLES, BATCH // size))
    means = pl.concat(
        [
            differences.sample(size * at_once, with_replacement=True, seed=SEED + start)
            .reshape((at_once, size))
            .arr.mean()
            for start in range(0, RESAMPLES, at_once)
        ]
    )
    tail = (1 - LEVEL) / 2
    return means.quantile(tail, "linear"), means.quantile(1 - tail, "linear")


def mcnemar(better: int, worse: int) -> float:
    """Return how likely so uneven a change of sides is by chance alone (exact, two-sided)."""
    changed, fewer = better + worse, min(better, worse)
    tail = sum(comb(changed, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**changed)


def _mean(values: pl.Series) -> float:
    return float(values.sum()) / len(values)
