"""Bootstrap over prompts: all that was said of one prompt is drawn together or not at all.

Several answers to one prompt are not independent; a resample that took them one by one would make
every interval too narrow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

RESAMPLES = 10_000
LEVEL = 0.95
BLOCK = 4_000_000
"""Draws that are held in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A percentile interval of level 95 %, and the standard deviation of what was resampled."""

    low: float
    high: float
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """The sums and the numbers of values of each cluster, in the order of the clusters' names."""

    sums: Array
    counts: Array


def clustered(values: Sequence[float], clusters: Sequence[str]) -> Clustered:
    """Sum values up by the cluster that each belongs to."""
    numbers = {name: number for number, name in enumerate(sorted(set(clusters)))}
    of = np.array([numbers[name] for name in clusters], dtype=np.int64)
    size = len(numbers)
    sums, counts = np.zeros(size), np.zeros(size)
    np.add.at(sums, of, np.asarray(values, dtype=float))
    np.add.at(counts, of, 1.0)
    return Clustered(sums=sums, counts=counts)


def mean_interval(
    values: Sequence[float], clusters: Sequence[str], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return the interval of the mean of `values`, whole clusters being resampled."""
    held = clustered(values, clusters)
    size = len(held.sums)
    rng = np.random.default_rng(seed)
    rows = max(1, BLOCK // size)
    means = [
        held.sums[drawn].sum(axis=1) / held.counts[drawn].sum(axis=1)
        for start in range(0, resamples, rows)
        for drawn in [rng.integers(size, size=(min(rows, resamples - start), size))]
    ]
    return interval(np.concatenate(means))


def resampled(
    clusters: Sequence[str], statistic: Callable[[Indices], float], *, seed: int, resamples: int
) -> Interval:
    """Return the interval of a statistic of rows, given as the indices that a resample holds."""
    members: dict[str, list[int]] = {}
    for index, name in enumerate(clusters):
        members.setdefault(name, []).append(index)
    held = [np.array(members[name], dtype=np.int64) for name in sorted(members)]
    rng = np.random.default_rng(seed)
    found = np.empty(resamples)
    for number in range(resamples):
        drawn: list[int] = rng.integers(len(held), size=len(held)).tolist()
        found[number] = statistic(np.concatenate([held[cluster] for cluster in drawn]))
    return interval(found)


def interval(resamples: Array) -> Interval:
    """Return the percentile interval of resampled values."""
    return Interval(
        low=float(np.quantile(resamples, (1 - LEVEL) / 2)),
        high=float(np.quantile(resamples, (1 + LEVEL) / 2)),
        standard_error=float(resamples.std(ddof=1)),
    )
