"""A model's length bias, measured separately from its accuracy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.policies.trainers.length_bias import (
    RankedPair,
    bucket_of,
    length_correlation,
    length_correlations,
    measure_bias,
)


def pair(margin: float, longer: int) -> RankedPair:
    return RankedPair(margin=margin, longer=longer)


@given(st.integers(-1000, 1000), st.integers(1, 64))
def test_every_difference_has_one_bucket(difference, width):
    bucket = bucket_of(difference, width)
    assert bucket.least <= abs(difference) <= bucket.most
    assert bucket == bucket_of(-difference, width)
    if difference:
        assert bucket.most - bucket.least == width - 1
        assert bucket.most % width == 0


@given(st.integers(1, 50), st.integers(1, 50))
def test_ranking_by_worth_alone(won, lost):
    pairs = [pair(1.0, 3)] * won + [pair(1.0, -3)] * lost
    assert length_correlation(pairs) == pytest.approx(0)


def test_a_bonus_for_length():
    pairs = [pair(1.0 + 0.5, 3), pair(1.0 - 0.5, -3)] * 10
    assert length_correlation(pairs) == pytest.approx(0.5 / (1 + 0.25) ** 0.5)


def test_each_bucket_has_its_own():
    pairs = [pair(1, 0), pair(2, 3), pair(-2, -3), pair(1, 7), pair(1, -7), pair(1, 12)]
    found = {str(bucket): value for bucket, value in length_correlations(pairs, 4).items()}
    assert found == {"1-4": pytest.approx(1), "5-8": pytest.approx(0), "9-12": None}


def test_metrics_count_neutral_pairs():
    pairs = [pair(1, 0), pair(-1, 1), pair(0, -1), pair(5, 4)]
    metrics = measure_bias(pairs, 4)
    assert metrics["accuracy"] == pytest.approx(2.5 / 4)
    assert metrics["neutral/accuracy"] == pytest.approx(1.5 / 3)
    assert (metrics["pairs"], metrics["neutral/pairs"]) == (4, 3)
    assert "length_correlation/1-4" in metrics
    assert measure_bias([], 4) == {}
