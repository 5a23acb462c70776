"""The mean over runs that differ in their seed alone, with its 95 % interval by Student's t."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from .student_t import quantile

TAIL = 0.025
"""The probability beyond either end of an interval of 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMean:
    """A mean over seeds; `low` and `high` are None for one seed, whose spread is unknown."""

    value: float
    low: float | None
    high: float | None
    seeds: int


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
    half = quantile(TAIL, seeds - 1) * stdev(values) / sqrt(seeds)
    low, high = mean - half, mean + half
    if of_shares:
        low, high = max(low, 0.0), min(high, 1.0)
    return SeedMean(value=mean, low=low, high=high, seeds=seeds)
