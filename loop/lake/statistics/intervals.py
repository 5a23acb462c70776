"""Intervals of 95 %: of a share or a mean over prompts, and of a mean over seeds.

The error of a mean over prompts is robust to clusters: the deviations of a cluster's prompts are
summed up first, so that ten wordings of a question that all fail together weigh as one. A share has
Wilson's interval (1927), which is never empty: that of 0 of 40 is 0 to 8.8 %, though the standard
error of answers that are all wrong is 0. Runs that differ in their seed alone have Student's.

The tail of Student's t distribution is an incomplete beta function, here by its continued fraction
(Press et al., Numerical Recipes, Section 6.4), so that scipy is not a dependency for this alone.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist, fmean, stdev

TERMS, CLOSE = 300, 1e-12
MANY = 40
"""Degrees of freedom above which the quantile is expanded, right to five digits."""


def upper_tail(t: float, degrees: float) -> float:
    """Return the probability of a value above `t`."""
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=1024)
def quantile(tail: float, degrees: float) -> float:
    """Return the t above which there is a probability of `tail`, at most 0.5."""
    normal = -NormalDist().inv_cdf(tail)
    if degrees > MANY:
        return _expand(normal, degrees)
    t, step = normal, 1.0
    front = exp(lgamma((degrees + 1) / 2) - lgamma(degrees / 2)) / sqrt(degrees * pi)
    while step > CLOSE * (1 + t):
        # Newton's steps: the tail is convex and heavier than the normal one, so they only go up.
        density = front * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        step = (upper_tail(t, degrees) - tail) / density
        t += step
    return t


def _expand(z: float, degrees: float) -> float:
    """Return the quantile by its expansion about the normal one (Abramowitz and Stegun 26.7.5)."""
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction, by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + term * d), 1 + term / c
            value *= d * c
        if abs(d * c - 1) < CLOSE:
            break
    return value


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
