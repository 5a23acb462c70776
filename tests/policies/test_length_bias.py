"""How much a model cares for length is told apart from how well it ranks."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.policies.trainers.length_bias import (
    RankedPair,
    bucket_of,
    length_correlation,
    length_correlations,
    measured,
    neutral,
)


def pair(margin: float, longer: int) -> RankedPair:
    return RankedPair(margin=margin, longer=longer)


@given(st.integers(-1000, 1000), st.integers(1, 64))
def test_every_difference_is_in_its_bucket_and_buckets_do_not_overlap(difference, width):
    bucket = bucket_of(difference, width)
    assert bucket.least <= abs(difference) <= bucket.most
    assert bucket == bucket_of(-difference, width)
    if difference:
        assert bucket.most - bucket.least == width - 1
        assert bucket.most % width == 0


def test_buckets_are_called_by_what_they_span():
    assert [str(bucket_of(n, 32)) for n in (0, 1, -32, 33)] == ["0", "1-32", "1-32", "33-64"]
    assert str(bucket_of(5, 1)) == "5"


def test_a_model_that_ranks_by_length_alone_has_one_or_minus_one():
    assert length_correlation([pair(2.0, 5), pair(-2.0, -5)]) == pytest.approx(1)
    assert length_correlation([pair(-2.0, 5), pair(2.0, -5)]) == pytest.approx(-1)


@given(st.integers(1, 50), st.integers(1, 50))
def test_a_model_that_ranks_by_worth_has_none_however_often_the_longer_answer_won(won, lost):
    pairs = [pair(1.0, 3)] * won + [pair(1.0, -3)] * lost
    assert length_correlation(pairs) == pytest.approx(0)


def test_a_bonus_for_length_is_found_at_its_size():
    pairs = [pair(1.0 + 0.5, 3), pair(1.0 - 0.5, -3)] * 10
    assert length_correlation(pairs) == pytest.approx(0.5 / (1 + 0.25) ** 0.5)


@given(st.lists(st.tuples(st.floats(-9, 9), st.integers(-9, 9)), max_size=12))
def test_it_is_a_correlation(rows):
    value = length_correlation([pair(margin, longer) for margin, longer in rows])
    sides = {longer > 0 for _, longer in rows if longer}
    assert value is None or abs(value) <= 1 + 1e-9
    if len(sides) < 2:
        assert value is None


def test_noise_about_worth_is_no_bias():
    rng = random.Random(0)
    pairs = [pair(rng.gauss(1, 1), rng.choice([3, -3, 3])) for _ in range(5000)]
    assert abs(length_correlation(pairs) or 1) < 0.05


def test_each_bucket_has_its_own_and_equal_lengths_none():
    pairs = [pair(1, 0), pair(2, 3), pair(-2, -3), pair(1, 7), pair(1, -7), pair(1, 12)]
    found = {str(bucket): value for bucket, value in length_correlations(pairs, 4).items()}
    assert found == {"1-4": pytest.approx(1), "5-8": pytest.approx(0), "9-12": None}


def test_what_is_told_counts_neutral_pairs_apart_and_leaves_out_what_is_no_number():
    pairs = [pair(1, 0), pair(-1, 1), pair(0, -1), pair(5, 4)]
    assert neutral(pairs, 4) == pairs[:3]
    told = measured(pairs, 4)
    assert told["accuracy"] == pytest.approx(2.5 / 4)
    assert told["neutral/accuracy"] == pytest.approx(1.5 / 3)
    assert (told["pairs"], told["neutral/pairs"]) == (4, 3)
    assert "length_correlation/1-4" in told
    assert measured([], 4) == {}
