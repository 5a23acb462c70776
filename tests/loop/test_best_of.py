"""The curve of best-of-n from N samples: unbiased, by hand, and whatever the order of the rows."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import CANDIDATE, REWARD
from lpfloop.loop.evaluation.best_of_curve import counts, expectations, ranked, weights
from lpfloop.loop.evaluation.best_of_win_rates import best_of_few


def test_the_curve_doubles_up_to_the_most():
    assert counts(1024) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert counts(6) == [1, 2, 4, 6]


def test_the_weights_are_the_papers_binomials():
    for total, n in ((1, 1), (4, 2), (7, 7), (9, 3)):
        exact = [Fraction(comb(i - 1, n - 1), comb(total, n)) for i in range(1, total + 1)]
        assert weights(total, n) == pytest.approx([float(x) for x in exact], abs=1e-15)
    assert sum(weights(1024, 512)) == pytest.approx(1, abs=1e-12)


def test_more_than_there_are_can_not_be_told():
    with pytest.raises(ValueError, match="best of 5 cannot be estimated from 4"):
        weights(4, 5)


def test_by_hand():
    values = [
        {"reward": 1.0, "true": 0.0},
        {"reward": 2.0, "true": 9.0},
        {"reward": 4.0, "true": 3.0},
    ]
    found = expectations(values, 4)
    assert found.keys() == {1, 2}
    assert found[1] == pytest.approx({"reward": 7 / 3, "true": 4.0})
    # Of the three pairs, one has the second as its best, two the third.
    assert found[2] == pytest.approx({"reward": (2 + 4 + 4) / 3, "true": (9 + 3 + 3) / 3})


def test_a_number_that_one_sample_lacks_is_left_out():
    found = expectations([{"reward": 1.0}, {"reward": 2.0, "true": 1.0}], 2)
    assert found[2] == {"reward": 2.0}
    assert expectations([], 2) == {}


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=8), st.data())
def test_it_is_the_mean_over_all_choices_of_n(rewards: list[float], data: st.DataObject):
    rewards.sort()
    n = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= len(rewards)]))
    expected = [max(chosen) for chosen in combinations(rewards, n)]
    found = expectations([{"reward": r} for r in rewards], 8)[n]["reward"]
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-9)


def test_samples_are_ranked_by_reward_and_those_without_one_are_left_out():
    names = ["a", "b", "c", "d", "e"]
    scores = {"a": 2.0, "b": 1.0, "c": 2.0, "d": None, "e": 9.0}
    candidates = [replace(CANDIDATE, candidate_id=n, prompt_id="p") for n in names]
    candidates[4] = replace(candidates[4], finish_reason="failed")
    rewards = [replace(REWARD, candidate_id=n, prompt_id="p", score=scores[n]) for n in names]
    found = ranked(candidates, rewards, cut_last=True)
    assert [c.candidate_id for c in found["p"].candidates] == ["b", "a", "c"]
    assert found["p"].rewards == (1.0, 2.0, 2.0)
    Random(1).shuffle(candidates)
    Random(2).shuffle(rewards)
    assert ranked(candidates, rewards, cut_last=True) == found


def test_a_cut_answer_is_the_best_only_where_not_one_ended():
    """Where the rule says so; else it is like any other."""
    told = {"whole": 1.0, "cut": 9.0, "longer": 8.0, "better": 2.0}
    cut = {"cut", "longer"}
    rewards = [replace(REWARD, candidate_id=name, score=score) for name, score in told.items()]

    def order(names: list[str], *, cut_last: bool) -> list[str]:
        candidates = [
            replace(
                CANDIDATE,
                candidate_id=name,
                prompt_id="x",
                finish_reason="length" if name in cut else "stop",
            )
            for name in names
        ]
        samples = ranked(candidates, rewards, cut_last=cut_last)["x"]
        assert samples.rewards == tuple(told[c.candidate_id] for c in samples.candidates)
        return [c.candidate_id for c in samples.candidates]

    assert order([*told], cut_last=True) == ["longer", "cut", "whole", "better"]
    assert order([*told], cut_last=False) == ["whole", "better", "longer", "cut"]
    assert order([*cut], cut_last=True) == ["longer", "cut"]


def test_the_best_of_fewer_is_by_hand_whatever_the_order_of_the_rows():
    scores = {"e": 9.0, "b": None, "c": 3.0, "d": 2.0, "a": 1.0}
    candidates = [replace(CANDIDATE, candidate_id=name, prompt_id="x") for name in scores]
    rewards = [replace(REWARD, candidate_id=name, score=score) for name, score in scores.items()]
    samples = ranked(candidates, rewards, cut_last=True)["x"]
    found = [best_of_few(samples, n) for n in (1, 2, 3, 4, 5)]
    assert [c and c.candidate_id for c in found] == ["a", "c", "c", "e", None]
