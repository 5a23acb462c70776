"""Measures over prompts with their 95 % intervals, for rows in clusters: answers to one prompt.

Several answers to one prompt, or several verdicts on them, are not independent. So a measure's
standard error is found by leaving out each cluster in turn (the jackknife, Efron and Stein 1981; of
a mean it is the cluster-robust error). A share has Wilson's interval, with as many independent
draws as give this error; any other measure has the value plus and minus Student's quantile times
the error, with a degree of freedom fewer than there are clusters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan, sqrt

import numpy as np
from numpy.typing import NDArray

from .intervals import TAIL, quantile, wilson

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]
Values = Numbers | Indices | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfSums:
    """A measure that is a function of sums over rows, such as a ratio or a kappa.

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


def ratio(numerator: Values, denominator: Values) -> OfSums:
    """Return a share: the sum of `numerator` over the sum of `denominator`, one value a row each.

    Each row's numerator is between 0 and its denominator.
    """
    columns = np.stack([numerator, denominator], axis=1).astype(float)
    return OfSums(columns=columns, value=_quotient, counted=columns[:, 1], is_share=True)


def _quotient(sums: Numbers) -> Numbers:
    return quotient(sums[..., 0], sums[..., 1])


def quotient(numerator: Numbers, denominator: Numbers) -> Numbers:
    """Return a quotient, NaN if the denominator is zero."""
    undefined = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def number_clusters(names: Sequence[str]) -> Indices:
    """Return the number of the cluster that each row belongs to; their names give the order."""
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


def estimate(measure: OfSums, clusters: Indices) -> Estimate | None:
    """Return a measure with its interval; None for a measure without data."""
    sums = sum_by_cluster(np.column_stack([measure.columns, measure.counted]), clusters)
    sums = sums[sums[:, -1] > 0]
    total = sums.sum(axis=0)
    value = float(measure.value(total[:-1]))
    if not len(sums) or isnan(value):
        return None
    # Undefined for a cluster that alone defines the measure: the error is unknown.
    left = measure.value(total[:-1] - sums[:, :-1])
    error = sqrt((len(sums) - 1) * float(left.var())) if not np.isnan(left).any() else None
    return add_bounds(value, error, round(total[-1]), len(sums), is_share=measure.is_share)


def add_bounds(
    value: float, error: float | None, n: int, clusters: int, *, is_share: bool
) -> Estimate:
    """Return an estimate with the interval that its standard error gives; None if it is unknown."""
    found: tuple[float, float] | None = None
    if clusters > 1 and is_share and value in (0.0, 1.0):
        found = wilson(value, clusters)
    elif clusters > 1 and error is not None:
        wide = quantile(TAIL, clusters - 1)
        if is_share:
            draws = value * (1 - value) / error**2 if error > 0 else clusters
            found = wilson(value, draws, wide)
        else:
            found = value - wide * error, value + wide * error
    low, high = found or (None, None)
    return Estimate(value=value, low=low, high=high, n=n, instructions=clusters)


def sum_by_cluster(columns: Numbers, clusters: Indices) -> Numbers:
    """Sum each column up by cluster; shape (clusters, columns)."""
    sums = np.zeros((int(clusters.max()) + 1, columns.shape[1]))
    np.add.at(sums, clusters, columns)
    return sums
