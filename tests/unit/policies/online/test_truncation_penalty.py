"""Rewards of cut answers compared with finished ones, for each rule."""

from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.methods import MissingEnd
from lpfloop.policies.online.truncation_penalty import apply_rule, cut_metrics

SCORES = st.lists(st.tuples(st.floats(-50, 50), st.booleans()), min_size=1, max_size=12)


def test_rules():
    rules: dict[MissingEnd, list[float]] = {
        "none": [2.0, 0.5, -4.0],
        "replace": [2.0, -1.5, -4.0],
        "subtract": [2.0, -1.0, -4.0],
        "below": [2.0, -4.0 - 1.5 * 3.0, -4.0],
    }
    for rule, expected in rules.items():
        assert apply_rule([2.0, 0.5, -4.0], [True, False, True], rule, 1.5) == expected


@given(SCORES, st.floats(-100, 100))
def test_below_every_finished_answer(told: list[tuple[float, bool]], shift: float):
    scores, ended = [score + shift for score, _ in told], [whole for _, whole in told]
    found = apply_rule(scores, ended, "below")
    finished = [r for r, whole in zip(found, ended, strict=True) if whole]
    cut = [r for r, whole in zip(found, ended, strict=True) if not whole]
    assert finished == [s for s, whole in zip(scores, ended, strict=True) if whole]
    if not finished:
        assert cut == scores
    elif cut:
        assert max(cut) < min(finished)
        assert cut_metrics(found, ended)["missing_eos/above_mean"] == 0.0


def test_one_answer_no_spread():
    scores, ended = [3.0, 1.0, 5.0], [True, False, False]
    assert apply_rule(scores, ended, "below", 2.0) == [3.0, *[3.0 - 2 * pstdev(scores)] * 2]
    assert apply_rule([3.0, 3.0], [True, False], "below") == [3.0, 2.0]


def test_metrics_of_cut_answers():
    """The demo's reward model: over half of its scores are below -1."""
    scores, ended = [-3.0, -2.5, -2.0, -0.5, -2.2, -2.4], [True] * 4 + [False] * 2
    assert cut_metrics(apply_rule(scores, ended, "replace"), ended)["missing_eos/above_mean"] == 1.0
    told = cut_metrics(apply_rule(scores, ended, "below"), ended)
    deviation = pstdev(scores[:4])
    assert told == {
        "missing_eos/count": 2.0,
        "missing_eos/reward": pytest.approx(-3.0 - deviation),
        "missing_eos/above_mean": 0.0,
    }
    assert cut_metrics(scores, [True] * 6) == {"missing_eos/count": 0.0}
