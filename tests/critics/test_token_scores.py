"""A score from log-probabilities is the expectation over the tokens of the scale, or none."""

import math

import pytest

from lpfloop.critics.judge import UnreadError
from lpfloop.critics.token_scores import expected_score

FIVE = {str(n): float(n) for n in range(1, 6)}


def test_the_expectation_is_over_the_tokens_of_the_scale():
    given = {"4": math.log(0.6), "5": math.log(0.3), "The": math.log(0.1)}
    assert expected_score(given, FIVE) == pytest.approx((4 * 0.6 + 5 * 0.3) / 0.9)


def test_a_token_that_begins_a_word_is_the_same_number():
    given = {"2": math.log(0.25), " 2": math.log(0.25), "\u01204": math.log(0.5)}
    assert expected_score(given, FIVE) == pytest.approx(3)


def test_a_preference_is_weighted_as_alpacaeval_does_it():
    given = {"M": math.log(0.2), "m": math.log(0.8)}
    assert expected_score(given, {"m": 1.0, "M": 2.0}) == pytest.approx(1.2)


@pytest.mark.parametrize(
    "given", [{}, {"The": -0.01}, {"5": math.log(0.4)}, {"44": 0.0}, {"6": 0.0}]
)
def test_a_judge_that_was_about_to_write_something_else_gives_none(given):
    with pytest.raises(UnreadError, match="missing"):
        expected_score(given, FIVE)


@pytest.mark.parametrize("given", [{"5": 1.0}, {"5": math.log(0.8), " 5": math.log(0.8)}])
def test_more_than_all_probability_is_no_probability(given):
    with pytest.raises(UnreadError, match="malformed"):
        expected_score(given, FIVE)


def test_a_scale_of_which_one_token_begins_another_is_refused():
    with pytest.raises(ValueError, match="begins another"):
        expected_score({"1": 0.0}, {"1": 1.0, "10": 10.0})
