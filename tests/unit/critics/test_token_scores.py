"""A score from log-probabilities is the expectation over the tokens of the scale, or none."""

import math

import pytest

from lpfloop.critics.status import UnreadError
from lpfloop.critics.token_scores import expected_score

FIVE = {str(n): float(n) for n in range(1, 6)}


def test_expectation_over_the_scale():
    given = {"4": math.log(0.6), "5": math.log(0.3), "The": math.log(0.1)}
    assert expected_score(given, FIVE) == pytest.approx((4 * 0.6 + 5 * 0.3) / 0.9)


def test_tokens_that_begin_a_word():
    given = {"2": math.log(0.25), " 2": math.log(0.25), "\u01204": math.log(0.5)}
    assert expected_score(given, FIVE) == pytest.approx(3)


def test_other_tokens_give_no_score(subtests):
    for given in [{}, {"The": -0.01}, {"5": math.log(0.4)}, {"44": 0.0}, {"6": 0.0}]:
        with subtests.test(given=given), pytest.raises(UnreadError, match="missing"):
            expected_score(given, FIVE)


def test_impossible_probabilities(subtests):
    for given in [{"5": 1.0}, {"5": math.log(0.8), " 5": math.log(0.8)}]:
        with subtests.test(given=given), pytest.raises(UnreadError, match="malformed"):
            expected_score(given, FIVE)


def test_ambiguous_scales_are_refused():
    with pytest.raises(ValueError, match="begins another"):
        expected_score({"1": 0.0}, {"1": 1.0, "10": 10.0})
