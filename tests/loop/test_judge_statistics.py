"""The statistics of judges are those of the paper, checked by hand and against brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.evaluation.judge_statistics import (
    agreement,
    agreement_in_place,
    decided_agreement,
    error,
    first_shown,
    held_out_agreement,
    majorities_agreement,
    majority,
    order_agreement,
    preference_for,
    repeat_agreement,
)
from lpfloop.loop.lake.statistics import bootstrap
from lpfloop.loop.lake.statistics.bootstrap import Ratio, estimates

PANEL = 4


def counts(*rows):
    """Counts of (first, second, tie), one row a pair."""
    return np.array(rows, dtype=np.int64)


def value(ratio):
    return ratio.numerator.sum() / ratio.denominator.sum()


# majorities


def test_a_majority_of_three():
    assert majority(counts([2, 1, 0]), 3).tolist() == [[1, 0, 0]]


def test_modes_that_share_the_first_place_share_the_majority():
    assert majority(counts([2, 2, 0]), 4).tolist() == [[0.5, 0.5, 0]]


def test_of_more_votes_than_the_panel_all_draws_count_alike():
    # Two of {1, 1, 2}: {1, 1} once, {1, 2} twice, of which each is the mode with one half.
    np.testing.assert_allclose(majority(counts([2, 1, 0]), 2), [[2 / 3, 1 / 3, 0]], atol=1e-12)


def test_without_votes_there_is_no_majority():
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
def test_majorities_are_those_of_all_draws(rows, panel):
    expected = [brute_force(row, panel) for row in rows]
    np.testing.assert_allclose(majority(counts(*rows), panel), expected, atol=1e-12)


# agreement, bias, variance


def test_alpacaevals_own_example_of_a_held_out_vote():
    # Four votes on each of two pairs: 1 1 1 1, and 2 2 2 1.
    votes = counts([4, 0, 0], [1, 3, 0])
    assert value(held_out_agreement(votes, 4)) == 7 / 8
    assert value(held_out_agreement(votes, 2)) == pytest.approx(3 / 4, abs=1e-12)


def test_the_variance_of_an_even_coin_is_one_half():
    # Four fair flips and three others: P(a flip is not the majority's) is 1/2, over all outcomes.
    rows = [(4 - k, k, 0) for k in range(5) for _ in range([1, 4, 6, 4, 1][k])]
    assert value(error(held_out_agreement(counts(*rows), 4))) == pytest.approx(0.5, abs=1e-12)


def test_one_vote_has_no_others_to_be_compared_with():
    assert held_out_agreement(counts([1, 0, 0]), PANEL).denominator.tolist() == [0]


def test_agreement_with_the_majority_of_people():
    judge = counts([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0])
    people = counts([2, 1, 0], [1, 1, 0], [0, 0, 2], [0, 0, 0])
    # Right; right by half, as people are divided; right; nobody was asked.
    ratio = agreement(judge, people, PANEL)
    assert ratio.numerator.tolist() == [1, 0.5, 1, 0]
    assert ratio.denominator.tolist() == [1, 1, 1, 0]


def test_decided_verdicts_are_compared_without_ties():
    judge = counts([1, 0, 0], [0, 0, 1])
    people = counts([1, 0, 2], [1, 0, 0])
    ratio = decided_agreement(judge, people, PANEL)
    assert ratio.numerator.tolist() == [1, 0]
    assert ratio.denominator.tolist() == [1, 0]


def test_a_judge_in_the_place_of_each_person_in_turn():
    people = counts([2, 1, 0])
    # Without one of the two: 1 and 2 are left, one half each. Without the third: 1 and 1.
    assert value(agreement_in_place(people, counts([1, 0, 0]), PANEL)) == pytest.approx(2 / 3)
    assert value(agreement_in_place(people, counts([0, 1, 0]), PANEL)) == pytest.approx(1 / 3)


@given(st.lists(st.tuples(*(st.integers(0, 3),) * 3), min_size=1))
def test_people_in_their_own_place_agree_as_held_out_people_do(rows):
    people = counts(*rows)
    held_out = held_out_agreement(people, PANEL).numerator
    total = np.zeros(len(people))
    for label in range(3):
        alone = np.zeros_like(people)
        alone[:, label] = 1
        others = people - alone
        there = people[:, label] > 0
        modes = majority(np.maximum(others, 0), PANEL - 1)[:, label]
        total += np.where(there, people[:, label] * modes, 0)
    np.testing.assert_allclose(held_out, total, atol=1e-12)


def test_bias_is_the_error_between_majorities():
    judge = counts([3, 1, 0], [0, 4, 0], [2, 2, 0], [1, 0, 0])
    people = counts([4, 0, 0], [3, 1, 0], [0, 4, 0], [0, 0, 0])
    # The same; another; one half; no people.
    assert value(error(majorities_agreement(judge, people, PANEL))) == pytest.approx(1.5 / 3)


# tastes and consistency


def test_the_taste_for_more_of_something_leaves_ties_and_equals_out():
    votes = counts([1, 3, 2], [2, 0, 0], [5, 5, 0])
    ratio = preference_for(np.array([1.0, -1.0, 0.0]), votes)
    assert ratio.numerator.tolist() == [3, 2, 0]
    assert ratio.denominator.tolist() == [4, 2, 0]


def test_the_taste_for_the_first_place():
    # As given, `first` was shown first; swapped, `second` was.
    assert value(first_shown(counts([3, 1, 1]), counts([1, 3, 0]))) == 6 / 8


def test_the_order_of_the_outputs():
    as_given, swapped = (
        counts([2, 0, 0], [1, 0, 0], [1, 0, 0]),
        counts([1, 1, 0], [0, 0, 1], [0] * 3),
    )
    ratio = order_agreement(as_given, swapped)
    assert ratio.numerator.tolist() == [0.5, 0, 0]
    assert ratio.denominator.tolist() == [1, 1, 0]


def test_repeats_of_a_question():
    # Three verdicts on one question: of three couples, one agrees. One verdict has no couple.
    assert value(repeat_agreement([counts([2, 1, 0]), counts([1, 0, 0])])) == pytest.approx(1 / 3)


# intervals


def ratio(numerator):
    numerator = np.asarray(numerator, dtype=float)
    return Ratio(numerator=numerator, denominator=np.ones(len(numerator)))


def test_the_interval_is_that_of_the_mean():
    hits = np.arange(400) % 2
    (found,) = estimates([ratio(hits)], np.arange(400), draws=4000, seed=1)
    assert found.value == 0.5
    assert found.n == found.instructions == 400
    # 1.96 standard errors of a share of one half among 400.
    assert found.high - 0.5 == pytest.approx(1.96 * 0.025, rel=0.06)
    assert 0.5 - found.low == pytest.approx(1.96 * 0.025, rel=0.06)


def test_more_pairs_of_the_same_instructions_do_not_narrow_it():
    hits = np.arange(100) % 2
    once, tenfold = (
        estimates([ratio(np.repeat(hits, n))], np.repeat(np.arange(100), n), draws=1000, seed=1)[0]
        for n in (1, 10)
    )
    assert (tenfold.low, tenfold.high) == (once.low, once.high)
    assert tenfold.n == 10 * once.n


def test_the_same_seed_gives_the_same_interval():
    args = [ratio(np.arange(50) % 3 == 0)], np.arange(50)
    first, again, other = (estimates(*args, draws=500, seed=s)[0] for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_resample_holds_as_many_clusters_and_blocks_do_not_change_them(monkeypatch):
    whole = np.concatenate(list(bootstrap.resamples(7, draws=100, seed=1)))
    monkeypatch.setattr(bootstrap, "BLOCK", 20)
    blocks = list(bootstrap.resamples(7, draws=100, seed=1))
    assert {len(block) for block in blocks} == {2}
    assert (np.concatenate(blocks) == whole).all()
    assert whole.shape == (100, 7)
    assert set(whole.sum(axis=1)) == {7}


def test_one_instruction_has_no_interval():
    (found,) = estimates([ratio([1, 0])], np.zeros(2, dtype=np.int64), draws=100, seed=1)
    assert (found.value, found.low, found.high) == (0.5, None, None)


def test_nothing_to_measure_is_no_number():
    nothing = Ratio(numerator=np.zeros(3), denominator=np.zeros(3))
    assert estimates([nothing], np.arange(3), draws=100, seed=1) == [None]
