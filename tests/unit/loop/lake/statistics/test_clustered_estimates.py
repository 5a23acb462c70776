"""Intervals over clusters hold the true value about as often as they say."""

import math

import numpy as np
import pytest

from lpfloop.loop.evaluation.judge_statistics import cohen
from lpfloop.loop.lake.statistics.clustered_estimates import OfSums, estimate, ratio
from lpfloop.loop.lake.statistics.intervals import mean_error, wilson
from lpfloop.loop.lake.statistics.roc_area import area_estimate

ONES = np.ones(4)


def drawn(rng, clusters, *, size=4, spread=1.5):
    """Return right or wrong answers whose clusters differ in difficulty, and their clusters."""
    chances = 1 / (1 + np.exp(-rng.normal(0, spread, clusters)))
    about = np.repeat(np.arange(clusters), size)
    return (rng.random(clusters * size) < chances[about]).astype(float), about


@pytest.mark.parametrize("clusters", [5, 20, 60])
def test_shares_are_covered(clusters):
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        right, about = drawn(rng, clusters)
        found = estimate(ratio(right, np.ones(len(right))), about)
        covered += found.low <= 0.5 <= found.high
    assert 0.92 * 400 <= covered <= 0.99 * 400


def test_kappas_and_areas_are_covered():
    rng = np.random.default_rng(3)
    kappas = areas = 0
    for _ in range(300):
        truth, about = drawn(rng, 40)
        told = np.where(rng.random(len(truth)) < 0.8, truth, 1 - truth)
        sides = (np.column_stack([1 - side, side]) for side in (truth, told))
        kappa = estimate(cohen(*sides), about)
        kappas += kappa.low <= 0.6 <= kappa.high
        scores = truth + rng.normal(0, 1, len(truth))
        area = area_estimate(scores, truth == 1, about)
        areas += area.low <= 0.5 * math.erfc(-0.5) <= area.high
    assert 0.91 * 300 <= kappas <= 0.99 * 300
    assert 0.91 * 300 <= areas <= 0.99 * 300


def test_error_of_a_mean_is_that_of_clusters():
    values, about = np.array([0.1, 0.9, 0.4, 0.5]), np.array([0, 0, 1, 1])
    mean = OfSums(
        columns=np.column_stack([values, ONES]),
        value=lambda sums: sums[..., 0] / sums[..., 1],
        counted=ONES,
    )
    found = estimate(mean, about)
    error = mean_error(values.tolist(), about.tolist())
    assert found.high - found.value == pytest.approx(12.706 * error, rel=1e-3)


def test_measures_without_a_spread():
    every = estimate(ratio(ONES, ONES), np.arange(4))
    assert (every.low, every.high) == wilson(1.0, 4)
    one = estimate(ratio(ONES, ONES), np.zeros(4, dtype=np.int64))
    assert (one.value, one.low, one.high) == (1.0, None, None)
    assert estimate(ratio(0 * ONES, 0 * ONES), np.arange(4)) is None
