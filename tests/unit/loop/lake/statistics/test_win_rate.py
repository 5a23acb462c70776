"""Win rates by hand-computed values: the mean, its error, and pairs of models."""

import pytest

from lpfloop.loop.lake.statistics.win_rate import difference, share_won


def test_draws_count_half():
    assert [share_won(given) for given in (1, 2, 0, 1.5, 1.25)] == [0, 1, 0.5, 0.5, 0.25]


def test_difference_of_common_prompts():
    found = difference({"a": 0.0, "b": 1.0, "c": 1.0}, {"b": 1.0, "c": 0.0, "d": 1.0})
    assert (found.value, found.standard_error, found.n) == (-0.5, pytest.approx(0.5), 2)
    assert difference({"a": 1.0}, {"b": 1.0}) is None
