"""The statistics of judges equal the paper's, checked by hand and against brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.evaluation.judge_statistics import (
    TIE,
    error,
    first_shown,
    held_out_agreement,
    in_place_standard,
    majorities_agreement,
    majority,
    match_rate,
    order_agreement,
    preference_for,
    repeat_agreement,
)

PANEL = 4


def counts(*rows):
    """Counts of (first, second, tie), one row a pair."""
    return np.array(rows, dtype=np.int64)


def sums(measure):
    return tuple(column.tolist() for column in measure.columns.T)


def value(measure):
    return float(measure.value(measure.columns.sum(axis=0)))


# majorities


def test_majorities():
    assert majority(counts([2, 1, 0]), 3).tolist() == [[1, 0, 0]]
    assert majority(counts([2, 2, 0]), 4).tolist() == [[0.5, 0.5, 0]]
    assert majority(counts([0, 0, 0]), 4).tolist() == [[0, 0, 0]]


def brute_force(row, panel):
    votes = [label for label, number in enumerate(row) for _ in range(number)]
    draws = list(combinations(votes, min(panel, len(votes))))
    shares = np.zeros(3)
    for draw in draws:
        number = np.bincount(draw, minlength=3)
        modes = number == number.max()
        shares += modes / modes.sum() / len(draws)
    return shares


@given(
    rows=st.lists(
        st.tuples(*(st.integers(0, 4),) * 3).filter(lambda row: sum(row) > 0), min_size=1
    ),
    panel=st.integers(1, 5),
)
def test_majorities_of_all_draws(rows, panel):
    expected = [brute_force(row, panel) for row in rows]
    np.testing.assert_allclose(majority(counts(*rows), panel), expected, atol=1e-12)


# agreement, bias, variance


def test_held_out_vote_of_alpacaeval():
    # Four votes on each of two pairs: 1 1 1 1, and 2 2 2 1.
    votes = counts([4, 0, 0], [1, 3, 0])
    assert value(held_out_agreement(votes, 4)) == 7 / 8
    assert value(held_out_agreement(votes, 2)) == pytest.approx(3 / 4, abs=1e-12)
    assert sums(held_out_agreement(counts([1, 0, 0]), PANEL))[1] == [0]
    # Four fair flips and three others: P(a flip is not the majority's) is 1/2, over all outcomes.
    rows = [(4 - k, k, 0) for k in range(5) for _ in range([1, 4, 6, 4, 1][k])]
    assert value(error(held_out_agreement(counts(*rows), 4))) == pytest.approx(0.5, abs=1e-12)


def test_agreement_with_people():
    judge = counts([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0])
    people = counts([2, 1, 0], [1, 1, 0], [0, 0, 2], [0, 0, 0])
    # Right; right by half, as people are divided; right; nobody was asked.
    ratio = match_rate(judge, majority(people, PANEL))
    assert sums(ratio) == ([1, 0.5, 1, 0], [1, 1, 1, 0])
    decided_by = majority(counts([1, 0, 2], [1, 0, 0])[:, :TIE], PANEL)
    decided = match_rate(counts([1, 0, 0], [0, 0, 1])[:, :TIE], decided_by)
    assert sums(decided) == ([1, 0], [1, 0])


def test_judge_in_each_persons_place():
    people = counts([2, 1, 0])
    # Without one of the two: 1 and 2 are left, one half each. Without the third: 1 and 1.
    standard = in_place_standard(people, PANEL)
    assert value(match_rate(counts([1, 0, 0]), standard)) == pytest.approx(2 / 3)
    assert value(match_rate(counts([0, 1, 0]), standard)) == pytest.approx(1 / 3)


def test_bias_between_majorities():
    judge = counts([3, 1, 0], [0, 4, 0], [2, 2, 0], [1, 0, 0])
    people = counts([4, 0, 0], [3, 1, 0], [0, 4, 0], [0, 0, 0])
    # The same; another; one half; no people.
    assert value(error(majorities_agreement(judge, people, PANEL))) == pytest.approx(1.5 / 3)


# tastes and consistency


def test_tastes():
    votes = counts([1, 3, 2], [2, 0, 0], [5, 5, 0])
    ratio = preference_for(np.array([1.0, -1.0, 0.0]), votes)
    assert sums(ratio) == ([3, 2, 0], [4, 2, 0])
    # As given, `first` was shown first; swapped, `second` was.
    assert value(first_shown(counts([3, 1, 1]), counts([1, 3, 0]))) == 6 / 8


def test_order_and_repeats():
    as_given, swapped = (
        counts([2, 0, 0], [1, 0, 0], [1, 0, 0]),
        counts([1, 1, 0], [0, 0, 1], [0] * 3),
    )
    ratio = order_agreement(as_given, swapped)
    assert sums(ratio) == ([0.5, 0, 0], [1, 1, 0])
    # Three verdicts on one question: one of three pairs agrees. A single verdict forms no pair.
    assert value(repeat_agreement([counts([2, 1, 0]), counts([1, 0, 0])])) == pytest.approx(1 / 3)
