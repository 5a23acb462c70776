"""The curve of best-of-n from N samples: unbiased, as by hand, and independent of row order."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import CANDIDATE, REWARD

from lpfloop.loop.evaluation.best_of_n import expectations, rank_samples, weights


def test_weights_are_the_papers():
    for total, n in ((1, 1), (4, 2), (7, 7), (9, 3)):
        exact = [Fraction(comb(i - 1, n - 1), comb(total, n)) for i in range(1, total + 1)]
        assert weights(total, n) == pytest.approx([float(x) for x in exact], abs=1e-15)
    assert sum(weights(1024, 512)) == pytest.approx(1, abs=1e-12)

    with pytest.raises(ValueError, match="best of 5"):
        weights(4, 5)


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=8), st.data())
def test_mean_over_all_choices(rewards: list[float], data: st.DataObject):
    rewards.sort()
    n = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= len(rewards)]))
    expected = [max(chosen) for chosen in combinations(rewards, n)]
    found = expectations([{"reward": r} for r in rewards], 8)[n]["reward"]
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-9)


def test_samples_are_ranked_by_reward():
    names = ["a", "b", "c", "d", "e"]
    scores = {"a": 2.0, "b": 1.0, "c": 2.0, "d": None, "e": 9.0}
    candidates = [replace(CANDIDATE, candidate_id=n, prompt_id="p") for n in names]
    candidates[4] = replace(candidates[4], finish_reason="failed")
    rewards = [replace(REWARD, candidate_id=n, prompt_id="p", score=scores[n]) for n in names]
    found = rank_samples(candidates, rewards)
    assert [c.candidate_id for c in found["p"].candidates] == ["b", "a", "c"]
    assert found["p"].rewards == (1.0, 2.0, 2.0)
    Random(1).shuffle(candidates)
    Random(2).shuffle(rewards)
    assert rank_samples(candidates, rewards) == found
