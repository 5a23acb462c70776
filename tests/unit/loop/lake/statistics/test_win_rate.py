"""Win rates by hand-computed values: the mean, its error, and pairs of models."""

import math

import numpy as np

from lpfloop.loop.lake.statistics.bootstrap import mean_interval
from lpfloop.loop.lake.statistics.win_rate import difference, share_won


def test_draws_count_half():
    assert [share_won(given) for given in (1, 2, 0, 1.5, 1.25)] == [0, 1, 0.5, 0.5, 0.25]


def test_intervals_cover_their_mean():
    rng = np.random.default_rng(7)
    covered = 0
    for number in range(100):
        values = rng.random(80)
        found = mean_interval(list(values), np.arange(80), draws=300, seed=number)
        covered += found.low <= 0.5 <= found.high
    assert 88 <= covered <= 99


def test_difference_of_paired_models():
    hard = {str(n): float(n % 2) for n in range(200)}
    better = {prompt: min(value + 0.1, 1.0) for prompt, value in hard.items()}
    found = difference(hard, better)
    assert math.isclose(found.value, 0.05)
    assert found.interval[0] > 0.04
    assert found.interval[1] < 0.06


def test_difference_of_common_prompts():
    found = difference({"a": 0.0, "b": 1.0, "c": 1.0}, {"b": 1.0, "c": 0.0, "d": 1.0})
    assert (found.value, found.n) == (-0.5, 2)
    assert difference({"a": 1.0}, {"b": 1.0}) is None
