"""The interval of a share, such as 0 of 40: Wilson's (1927), which is never empty.

A standard error of answers that are all right or all wrong is 0, as if 40 prompts were all there
are. Wilson's interval of 0 of 40 is 0 to 8.8 %.
"""

from math import sqrt
from statistics import NormalDist

NORMAL = NormalDist().inv_cdf(0.975)


def wilson(share: float, n: float, wide: float = NORMAL) -> tuple[float, float]:
    """Return the interval of a share of `n` independent draws; `wide` is the quantile of 95 %."""
    square = wide**2 / n
    centre = (share + square / 2) / (1 + square)
    half = wide / (1 + square) * sqrt(share * (1 - share) / n + square / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def share_interval(share: float, error: float | None, n: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share over `n` prompts, given its standard error.

    The error determines the effective number of independent draws: clustered prompts count for
    fewer. Without an error, as for a single cluster, the interval is None.
    """
    if error is None or not 0 <= share <= 1:
        return None
    return wilson(share, share * (1 - share) / error**2 if error > 0 and 0 < share < 1 else n)


def share_change(low: float, high: float) -> tuple[float, float]:
    """Return the bounds of a share's change, cut to the possible range: -1 to 1."""
    return max(low, -1.0), min(high, 1.0)
