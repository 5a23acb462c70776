"""The figures of a critic equal those by hand, and their definitions."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.evaluation.critic_check import (
    VERIFIER,
    AnswerGroup,
    figures,
)
from lpfloop.loop.lake.statistics.roc_area import area

SCORED = st.lists(
    st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 4)), min_size=1, max_size=40
)


def columns(rows):
    scores, right, clusters = zip(*rows, strict=True)
    numbered = np.unique(clusters, return_inverse=True)[1]
    return np.array(scores, dtype=float), np.array(right), numbered.astype(np.int64)


def pairwise(scores, right):
    """The definition: over all pairs of a right and a wrong answer, equal scores count half."""
    won = [
        1.0 if better > worse else 0.5 if better == worse else 0.0
        for better in scores[right]
        for worse in scores[~right]
    ]
    return sum(won) / len(won) if won else None


@given(rows=SCORED)
def test_auc_matches_pair_count(rows):
    scores, right, _ = columns(rows)
    found, defined = area(scores, right), pairwise(scores, right)
    assert (found is None) == (defined is None)
    assert found == pytest.approx(defined)


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


EXPECTED = {
    "approval": 3 / 5,
    "right": 3 / 5,
    "precision": 2 / 3,
    "recall": 2 / 3,
    "specificity": 1 / 2,
    "auroc": (0.5 + 1 + 0 + 1 + 0.5 + 1) / 6,
}


def test_figures_by_hand():
    found = figures(group(ANSWERS))
    assert (found.group, found.there, found.n) == ("math", 100, 5)
    assert (found.unscored, found.unlabelled) == (1, 1)
    assert found.estimates["reward_auroc"].n == 6
    values = {name: found.estimates[name].value for name in EXPECTED}
    assert values == pytest.approx(EXPECTED)
    # Right: 2, 0, 0, 1. Wrong: 1, 3. Against 1: a win and a tie; against 3: nothing.
    assert found.estimates["reward_auroc"].value == pytest.approx(1.5 / 8)
    precision = found.estimates["precision"]
    assert precision.low <= precision.value <= precision.high
    assert found.remark == ""
