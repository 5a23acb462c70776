"""The bootstrap over clusters: all rows of one prompt are drawn together or not at all.

Several answers to one prompt, or several verdicts on them, are not independent; a resample that
took them one by one would make every interval too narrow. Intervals are percentile intervals.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .share_interval import wilson

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]

LEVEL = 0.95
BLOCK = 100_000
"""Draws in memory at once; ten times as many exceed a core's cache, and are slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A measure: the sum of `numerator` over the sum of `denominator`; each has one value a row.

    `is_share`: each row's numerator is between 0 and its denominator.
    """

    numerator: Numbers
    denominator: Numbers
    is_share: bool = True

    def within(self, members: NDArray[np.bool_]) -> "Ratio":
        """Return the same measure of some rows alone."""
        return replace(
            self, numerator=self.numerator * members, denominator=self.denominator * members
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfSums:
    """A measure that is a function of several sums, such as a kappa.

    `columns` has shape (rows, sums). `value` takes the sums in its last dimension, and gives NaN if
    they define nothing. `counted` is each row's contribution to the `n` of the estimate.
    """

    columns: Numbers
    value: Callable[[Numbers], Numbers]
    counted: Numbers
    is_share: bool = False

    def within(self, members: NDArray[np.bool_]) -> "OfSums":
        """Return the same measure of some rows alone."""
        return replace(
            self, columns=self.columns * members[:, None], counted=self.counted * members
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval of level 95 %, and the standard deviation of the resampled measure."""

    low: float
    high: float
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A measure with its 95 % interval; `low` and `high` are None for fewer than two instructions.

    `n` is how many items were averaged: verdicts, or pairs if verdicts were compared with each
    other.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    instructions: int


def numbered(names: Sequence[str]) -> Indices:
    """Return the number of the cluster that each row belongs to; their names give the order."""
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


def resamples(clusters: int, *, draws: int, seed: int) -> Iterator[Indices]:
    """Give the resamples in blocks of rows: how often each of them holds each cluster."""
    generator = np.random.default_rng(seed)
    most = max(1, BLOCK // clusters)
    for start in range(0, draws, most):
        rows = min(most, draws - start)
        drawn = generator.integers(clusters, size=(rows, clusters))
        drawn += clusters * np.arange(rows)[:, None]  # So that one count serves the whole block.
        yield np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)


def interval(resampled: Numbers) -> Interval:
    """Return the percentile interval of a measure's values in all resamples."""
    low, high = np.quantile(resampled, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Interval(low=float(low), high=float(high), standard_error=float(resampled.std(ddof=1)))


def mean_interval(values: Sequence[float], clusters: Indices, *, draws: int, seed: int) -> Interval:
    """Return the interval of the mean of `values`, each of which belongs to a cluster."""
    there = np.ones(len(values))
    sums = _sums([np.asarray(values, dtype=float), there], clusters)
    resampled = _resampled(sums, draws, seed)
    return interval(resampled[:, 0] / resampled[:, 1])


def estimates(
    measures: Sequence[Ratio | OfSums], clusters: Indices, *, draws: int, seed: int
) -> list[Estimate | None]:
    """Return each measure with its interval; None for a measure without data.

    All measures are over the same rows, and are taken from the same resamples.
    """
    asked = [_of_sums(measure) for measure in measures]
    sums = _sums([column for each in asked for column in (*each.columns.T, each.counted)], clusters)
    resampled = _resampled(sums, draws, seed)
    found: list[Estimate | None] = []
    at = 0
    for each in asked:
        end = at + each.columns.shape[1]
        found.append(_estimate(each, sums[:, at : end + 1], resampled[:, at : end + 1]))
        at = end + 1
    return found


def _of_sums(measure: Ratio | OfSums) -> OfSums:
    if isinstance(measure, OfSums):
        return measure
    columns = np.stack([measure.numerator, measure.denominator], axis=1)
    return OfSums(
        columns=columns, value=_quotient, counted=measure.denominator, is_share=measure.is_share
    )


def _quotient(sums: Numbers) -> Numbers:
    return quotient(sums[..., 0], sums[..., 1])


def quotient(numerator: Numbers, denominator: Numbers) -> Numbers:
    """Return a quotient, NaN if the denominator is zero."""
    undefined = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def _estimate(measure: OfSums, sums: Numbers, resampled: Numbers) -> Estimate | None:
    """Return the estimate from the sums of the columns, of which the last are the counted rows."""
    total = sums.sum(axis=0)
    value = float(measure.value(total[:-1]))
    if not total[-1] or np.isnan(value):
        return None
    there = int((sums[:, -1] > 0).sum())
    held = measure.value(resampled[resampled[:, -1] > 0, :-1])
    low, high = None, None
    if there > 1:
        spread = interval(held[~np.isnan(held)])
        low, high = spread.low, spread.high
        if measure.is_share and value in (0.0, 1.0):  # All resamples are alike, as the rows are.
            low, high = wilson(value, there)
    return Estimate(
        value=value,
        low=low,
        high=high,
        n=round(total[-1]),
        instructions=there,
    )


def _sums(columns: Sequence[Numbers], clusters: Indices) -> Numbers:
    """Sum each column up by cluster; shape (clusters, columns)."""
    sums = np.zeros((int(clusters.max()) + 1, len(columns)))
    np.add.at(sums, clusters, np.stack(columns, axis=1))
    return sums


def _resampled(sums: Numbers, draws: int, seed: int) -> Numbers:
    """Return the sums over each resample; shape (draws, columns)."""
    return np.concatenate([held @ sums for held in resamples(len(sums), draws=draws, seed=seed)])
