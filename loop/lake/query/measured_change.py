"""How much a figure changed between two policies on the same prompts, with its interval.

A change has the same interval everywhere. If the loop has a verdict on the two policies, the bounds
of the figure that it decided by are the verdict's, and other figures have bounds at its level.
Without a verdict, both bounds make an interval of 95 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from ....stores.records import PolicyVerdict
from ..statistics.clustered_bounds import bounds, cluster_sums

USUAL_LEVEL = 0.025
"""The level of each bound of a change without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChange:
    """The mean change over `n` prompts in `clusters` clusters.

    `low` and `high` each err in at most a share `level` of comparisons; they are None if the
    clusters are too few. `better` prompts have more of the figure, `worse` have less.
    """

    n: int
    clusters: int
    value: float
    low: float | None
    high: float | None
    level: float | None
    better: int
    worse: int


def measured_change(
    figure: str,
    before: Sequence[float],
    after: Sequence[float],
    clusters: Sequence[str],
    verdict: PolicyVerdict | None = None,
) -> MeasuredChange:
    """Return the change of a figure over one or more prompts; `verdict` is on both policies."""
    sums = cluster_sums(before, after, clusters)
    level = USUAL_LEVEL
    counted = len(set(clusters))
    if verdict is not None and is_on(verdict, figure, before, after):
        low, high, level, counted = verdict.low, verdict.high, verdict.level, verdict.clusters
    else:
        level = level if verdict is None else verdict.level or level
        low, high = bounds(sums, level) or (None, None)
    return MeasuredChange(
        n=len(before),
        clusters=counted,
        value=sums.total / sums.n,
        low=low,
        high=high,
        level=level,
        better=sum(new > old for old, new in zip(before, after, strict=True)),
        worse=sum(new < old for old, new in zip(before, after, strict=True)),
    )


def is_on(
    verdict: PolicyVerdict, figure: str, before: Sequence[float], after: Sequence[float]
) -> bool:
    """Whether a verdict decided by this figure, and from these results."""
    n = len(before)
    same = (verdict.figure, verdict.n) == (figure, n)
    return (
        same
        and isclose(verdict.before, sum(before) / n, abs_tol=1e-9)
        and isclose(verdict.after, sum(after) / n, abs_tol=1e-9)
    )
