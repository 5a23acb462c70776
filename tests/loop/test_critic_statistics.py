"""The figures of a critic: by hand, and against their definitions."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.evaluation.critic_check import (
    PREFERENCES,
    VERIFIER,
    AnswerGroup,
    Resampling,
    figures,
)
from lpfloop.loop.lake.statistics.bootstrap import interval, resamples
from lpfloop.loop.lake.statistics.roc_area import area, area_estimate

SCORED = st.lists(
    st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 4)), min_size=1, max_size=40
)


def columns(rows):
    scores, right, clusters = zip(*rows, strict=True)
    numbered = np.unique(clusters, return_inverse=True)[1]
    return np.array(scores, dtype=float), np.array(right), numbered.astype(np.int64)


def pairwise(scores, right):
    """The definition: over all pairs of a right and a wrong answer, equal scores count a half."""
    won = [
        1.0 if better > worse else 0.5 if better == worse else 0.0
        for better in scores[right]
        for worse in scores[~right]
    ]
    return sum(won) / len(won) if won else None


def test_the_area_of_four_answers_by_hand():
    # 1 beats both wrong ones, 0 beats -1 and ties with 0: 3.5 of 4 pairs.
    scores, right = np.array([1.0, 0.0, -1.0, 0.0]), np.array([True, True, False, False])
    assert area(scores, right) == 3.5 / 4


@given(rows=SCORED)
def test_the_area_is_that_of_all_pairs(rows):
    scores, right, _ = columns(rows)
    found, defined = area(scores, right), pairwise(scores, right)
    assert (found is None) == (defined is None)
    assert found == pytest.approx(defined)


@given(rows=SCORED)
def test_the_interval_is_that_of_resamples_in_which_whole_clusters_repeat(rows):
    scores, right, clusters = columns(rows)
    areas = [
        found
        for block in resamples(int(clusters.max()) + 1, draws=30, seed=7)
        for held in block
        if (found := pairwise(*(np.repeat(c, held[clusters]) for c in (scores, right)))) is not None
    ]
    found = area_estimate(scores, right, clusters, draws=30, seed=7)
    if found is None or found.low is None:
        assert pairwise(scores, right) is None or len(set(clusters)) == 1 or len(areas) < 2
    else:
        spread = interval(np.array(areas))
        assert (found.low, found.high) == pytest.approx((spread.low, spread.high))


def test_without_a_class_there_is_no_area():
    scores, clusters = np.array([1.0, 0.0]), np.array([0, 1])
    for right in (True, False):
        assert area(scores, np.array([right, right])) is None
        assert area_estimate(scores, np.array([right] * 2), clusters, draws=100, seed=0) is None


ANSWERS = [
    # cluster, rating, passed, unread, reward, right
    ("a", 1.0, True, False, 2.0, True),
    ("a", 1.0, True, False, 1.0, False),
    ("b", 0.5, False, False, 0.0, True),
    ("b", 1.0, True, False, 0.0, True),
    ("c", -1.0, False, False, 3.0, False),
    ("c", None, None, True, 1.0, True),
    ("d", 1.0, True, False, 0.0, None),
]
NAMES = ("cluster", "rating", "passed", "unread", "reward", "right")


def group(rows, against=VERIFIER):
    frame = pl.DataFrame(rows, schema=list(NAMES), orient="row")
    return AnswerGroup(against=against, names={"task": "math"}, there=100, frame=frame)


def test_the_figures_of_seven_answers_by_hand():
    found = figures(group(ANSWERS), Resampling(draws=200))
    assert (found.group, found.there, found.n) == ("math", 100, 5)
    assert (found.unscored, found.unlabelled, found.reward_n) == (1, 1, 6)
    values = {
        name: getattr(found, name).value
        for name in ("approval", "right", "precision", "recall", "specificity", "auroc")
    }
    assert values == pytest.approx(
        {
            "approval": 3 / 5,
            "right": 3 / 5,
            "precision": 2 / 3,
            "recall": 2 / 3,
            "specificity": 1 / 2,
            "auroc": (0.5 + 1 + 0 + 1 + 0.5 + 1) / 6,
        }
    )
    # Right: 2, 0, 0, 1. Wrong: 1, 3. Against 1: a win and a tie; against 3: nothing.
    assert found.reward_auroc.value == pytest.approx(1.5 / 8)
    assert found.precision.low <= found.precision.value <= found.precision.high
    assert found.remark == ""


@pytest.mark.parametrize(
    ("right", "said", "missing"),
    [(True, "no answer is wrong", "specificity"), (False, "no answer is right", "recall")],
)
def test_where_a_class_is_missing_it_is_said_and_nothing_is_made_up(right, said, missing):
    found = figures(group([row for row in ANSWERS if row[-1] is right]), Resampling(draws=100))
    assert found.remark.startswith(said)
    assert found.auroc is found.reward_auroc is getattr(found, missing) is None
    assert found.precision.value == float(right)


def test_without_a_label_nothing_is_said():
    found = figures(group([(*row[:-1], None) for row in ANSWERS]), Resampling(draws=100))
    assert (found.n, found.unlabelled, found.auroc, found.approval) == (0, 7, None, None)
    assert found.remark


def test_of_preferences_it_is_how_often_the_preferred_answer_scores_higher():
    pairs = [("a", 1.0, True, False, 0.0, True), ("b", 0.5, True, False, None, True)]
    found = figures(group(pairs, PREFERENCES), Resampling(draws=100))
    assert (found.auroc.value, found.reward_auroc.value) == (0.75, 0.0)
    assert (found.n, found.reward_n, found.precision) == (2, 1, None)
