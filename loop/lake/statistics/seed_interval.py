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
    """A mean over seeds; `low` and `high` are None for one seed, which tells no spread."""

    value: float
    low: float | None
    high: float | None
    seeds: int


def seed_mean(values: Sequence[float], tail: float = TAIL) -> SeedMean:
    """Return the mean of one value a seed, with the interval that leaves out `tail` on each side.

    Raises:
        ValueError: without values.
    """
    if not values:
        raise ValueError("there is no seed to take a mean over")
    mean, seeds = fmean(values), len(values)
    if seeds == 1:
        return SeedMean(value=mean, low=None, high=None, seeds=1)
    half = quantile(tail, seeds - 1) * stdev(values) / sqrt(seeds)
    return SeedMean(value=mean, low=mean - half, high=mean + half, seeds=seeds)
