"""Student's t distribution: its upper tail and its quantiles.

The tail is an incomplete beta function, here by its continued fraction (Press et al., Numerical
Recipes, Section 6.4), so that scipy is not a dependency for this alone.
"""

from functools import lru_cache
from math import exp, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist

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
