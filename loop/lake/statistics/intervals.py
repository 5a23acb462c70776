"""Intervals of 95 %: of a share or a mean over prompts, and of a mean over seeds.

The error of a mean over prompts is robust to clusters: the deviations of a cluster's prompts are
summed up first, so that ten wordings of a question that all fail together weigh as one. A share has
Wilson's interval (1927), which is never empty: that of 0 of 40 is 0 to 8.8 %, though the standard
error of answers that are all wrong is 0. Runs that differ in their seed alone have Student's.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from .student_t import quantile

TAIL = 0.025
"""The probability beyond either end of an interval."""
NORMAL = NormalDist().inv_cdf(1 - TAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMean:
    """A mean over seeds; `low` and `high` are None for one seed, whose spread is unknown."""

    value: float
    low: float | None
    high: float | None
    seeds: int


def mean_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """Return the standard error of the mean of `values`; None if all are of one cluster."""
    mean = fmean(values) if values else 0.0
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    if len(sums) <= 1:
        return None
    squares = math.fsum(total * total for total in sums.values())
    return math.sqrt(squares * len(sums) / (len(sums) - 1)) / len(values)


def wilson(share: float, n: float, wide: float = NORMAL) -> tuple[float, float]:
    """Return the interval of a share of `n` independent draws; `wide` is the quantile of 95 %."""
    square = wide**2 / n
    centre = (share + square / 2) / (1 + square)
    half = wide / (1 + square) * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def share_interval(share: float, error: float | None, n: int) -> tuple[float, float] | None:
    """Return the interval of a share over `n` prompts, given its standard error.

    The error determines the effective number of independent draws: clustered prompts count for
    fewer. Without an error, as for a single cluster, the interval is None.
    """
    if error is None or not 0 <= share <= 1:
        return None
    return wilson(share, share * (1 - share) / error**2 if error > 0 and 0 < share < 1 else n)


def share_change(low: float, high: float) -> tuple[float, float]:
    """Return the bounds of a share's change, cut to the possible range: -1 to 1."""
    return max(low, -1.0), min(high, 1.0)


def seed_mean(values: Sequence[float], *, of_shares: bool = False) -> SeedMean:
    """Return the mean of one value a seed, with its interval, cut to 0 and 1 for shares.

    Raises:
        ValueError: without values.
    """
    if not values:
        raise ValueError("no seed to take a mean over")
    mean, seeds = fmean(values), len(values)
    if seeds == 1:
        return SeedMean(value=mean, low=None, high=None, seeds=1)
    half = quantile(TAIL, seeds - 1) * stdev(values) / math.sqrt(seeds)
    low, high = mean - half, mean + half
    if of_shares:
        low, high = max(low, 0.0), min(high, 1.0)
    return SeedMean(value=mean, low=low, high=high, seeds=seeds)
