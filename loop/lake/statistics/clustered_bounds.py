"""Bounds and p-values of a mean difference over prompts whose results are clustered.

With S_g the sum of the differences in cluster g, n_g its prompts, and N all prompts, a mean
difference of theta is refuted if
    (sum S_g - N theta)^2  >  q * (sum (S_g - n_g theta)^2 + 2 s^2).
The right side is the spread about the hypothesis, not about the mean, which makes the test a
self-normalised sum: if no cluster had a reason to go up rather than down, S_g would be as likely as
-S_g, and the ratio of both sides would be the ratio of a random walk with these steps, whatever the
sizes and spreads of the clusters; its tails are lighter than the normal distribution's (Efron
1969). With q = G t^2 / (G - 1 + t^2), t being Student's quantile of G - 1 degrees, the test of zero
is Student's own if the G clusters are alike, and nearly the normal one if few of many weigh most.

s^2 is the mean of S_g^2 over the m clusters that changed at all: one gain and one loss more than
were seen (Agresti and Min 2005, for paired proportions). For 0/1 results with few changes this
keeps the test to McNemar's exact one; with many changes it is negligible. And since m changes all
go one way in a share 2^-m of cases, fewer than log2(1 / alpha) show nothing.

Solved for theta, the differences that are not refuted form an interval in closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log, sqrt

import numpy as np

from .clustered_estimates import number_clusters
from .intervals import quantile, share_change, upper_tail

MOST_NEEDED = 10_000_000
"""If even so many prompts would not decide, no number is reported."""
HALVINGS = 24
ROUNDING = 1e-9
"""A cluster whose gains and losses cancel up to this difference has not changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSums:
    """The sufficient statistics of the differences at `n` prompts in `clusters` clusters.

    Sums over clusters: `total` of S_g, `squares` of S_g^2, `crossed` of n_g S_g, `sizes` of n_g^2.
    `changed` clusters have a sum other than 0; `unit` is the most that a prompt can change.
    `of_shares`: every result is between 0 and 1, so no mean difference is beyond -1 or 1.
    """

    n: float
    clusters: float
    changed: float
    total: float
    squares: float
    crossed: float
    sizes: float
    unit: float
    of_shares: bool

    @property
    def alike(self) -> float:
        """How many clusters of one size would weigh as much (Kish's effective number)."""
        return self.n**2 / self.sizes

    def negate(self) -> "ClusterSums":
        """Return the sums of the opposite differences."""
        return replace(self, total=-self.total, crossed=-self.crossed)

    def times(self, factor: float) -> "ClusterSums":
        """Return the sums of `factor` times as many clusters of the same kinds."""
        return replace(
            self,
            n=factor * self.n,
            clusters=factor * self.clusters,
            changed=factor * self.changed,
            total=factor * self.total,
            squares=factor * self.squares,
            crossed=factor * self.crossed,
            sizes=factor * self.sizes,
        )

    @property
    def ratio(self) -> float:
        """The test's statistic for a mean difference of 0; undefined if nothing changed."""
        return self.total**2 / (self.squares * (1 + 2 / self.changed))


def cluster_sums(
    before: Sequence[float], after: Sequence[float], clusters: Sequence[str]
) -> ClusterSums:
    """Return the sums over clusters of each prompt's change, for at least one prompt."""
    values = np.array([before, after], dtype=float)
    unit = float(np.ptp(values)) or 1.0
    about = number_clusters(clusters)
    sizes = np.bincount(about).astype(float)
    sums = np.bincount(about, weights=values[1] - values[0])
    return ClusterSums(
        n=len(about),
        clusters=len(sizes),
        changed=int(np.count_nonzero(np.abs(sums) > ROUNDING * unit)),
        total=float(sums.sum()),
        squares=float(sums @ sums),
        crossed=float(sums @ sizes),
        sizes=float(sizes @ sizes),
        unit=unit,
        of_shares=bool(values.min() >= 0 and values.max() <= 1),
    )


def bounds(sums: ClusterSums, alpha: float) -> tuple[float, float] | None:
    """Return a lower and an upper bound of the mean difference, each at the level `alpha`.

    Bounds of a difference of shares are cut to -1 and 1. None if so few clusters, or one that
    weighs so much, cannot bound it.
    """
    if not has_bounds(sums, alpha):
        return None
    low, high = _solve(sums, alpha)
    return share_change(low, high) if sums.of_shares else (low, high)


def _solve(sums: ClusterSums, alpha: float) -> tuple[float, float]:
    """Return between which theta are not refuted."""
    if not sums.changed:
        # As many clusters without a change are as likely as `alpha` if this share does change.
        most = sums.unit * (1 - alpha ** (1 / sums.alike))
        return -most, most
    q = _limit(alpha, sums.clusters)
    a = sums.n**2 - q * sums.sizes
    b = sums.total * sums.n - q * sums.crossed
    c = sums.total**2 - q * sums.squares * (1 + 2 / sums.changed)
    root = sqrt(max(b * b - a * c, 0.0))
    low, high = (b - root) / a, (b + root) / a
    if 0.5**sums.changed > alpha:
        return min(low, 0.0), max(high, 0.0)
    return low, high


def has_bounds(sums: ClusterSums, alpha: float) -> bool:
    """Return whether the clusters are many enough, and even enough, for bounds at this level."""
    return 0.5**sums.clusters <= alpha and sums.alike > _limit(alpha, sums.clusters)


def p_value(sums: ClusterSums) -> float:
    """Return how likely such a gain is without any: below `alpha` if the low bound is over 0."""
    if sums.total <= 0:
        return 0.5 if sums.total == 0 else 1 - p_value(sums.negate())
    tails = [_tail(ratio, sums.clusters) for ratio in (sums.ratio, sums.alike)]
    return min(0.5, max(*tails, 0.5**sums.changed))


def prompts_needed(sums: ClusterSums, alpha: float, worthwhile: float) -> int | None:
    """Return how many prompts would decide, if clusters and changes went on as they are.

    None if ten millions would not.
    """

    def decides(factor: float) -> bool:
        found = bounds(sums.times(factor), alpha)
        return found is not None and (found[0] > 0 or found[1] < worthwhile)

    if sums.clusters <= 1:
        return None  # Nobody knows how far apart the others would be.
    low, high = 0.0, log(max(MOST_NEEDED / sums.n, 1.0))
    if not decides(exp(high)):
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if decides(exp(middle)) else (middle, high)
    return max(ceil(exp(high) * sums.n), round(sums.n) + 1)


def _limit(alpha: float, clusters: float) -> float:
    """Return q, which a hypothesis is refuted above."""
    squared = quantile(alpha, clusters - 1) ** 2
    return clusters * squared / (clusters - 1 + squared)


def _tail(ratio: float, clusters: float) -> float:
    """Return the level at which q is `ratio`."""
    if clusters <= 1:
        return 0.5
    beyond = clusters - ratio
    return upper_tail(sqrt((clusters - 1) * ratio / beyond), clusters - 1) if beyond > 0 else 0.0
