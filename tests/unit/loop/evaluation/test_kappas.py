"""Kappas equal published examples, a computation by hand, and their definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.evaluation.judge_statistics import cohen, fleiss

DIAGNOSES = (
    "444444 222555 233335 555555 222444 113333 333355 113334 114444 555555 "
    "144444 124444 222333 144444 224445 333335 111455 111112 224444 133555 "
    "555555 244444 224555 114444 144445 222224 111155 224444 133333 555555"
)
"""Fleiss (1971), Table 1: six psychiatrists on thirty patients, kappa 0.430."""


def value(measure):
    found = measure.value(measure.columns.sum(axis=0))
    return float(found)


def one_each(labels, size):
    return np.eye(size, dtype=np.int64)[list(labels)]


def of_table(table):
    """Return Cohen's kappa of a table of confusions."""
    cells = [(i, j) for i, row in enumerate(table) for j, n in enumerate(row) for _ in range(n)]
    left, right = zip(*cells, strict=True)
    size = len(table)
    return value(cohen(one_each(left, size), one_each(right, size).astype(float)))


def test_cohen_of_textbooks(subtests):
    for table, kappa in (
        ([[20, 5], [10, 15]], 0.4),
        ([[0, 4, 1], [0, 8, 0], [0, 1, 5]], 0.4842),
        ([[3, 0], [0, 4]], 1.0),
        ([[0, 3], [3, 0]], -1.0),
    ):
        with subtests.test(table=table):
            assert of_table(table) == pytest.approx(kappa, abs=5e-5)


def test_fleiss_of_the_paper():
    counts = np.array([[row.count(str(n)) for n in range(1, 6)] for row in DIAGNOSES.split()])
    assert value(fleiss(counts)) == pytest.approx(0.4302445, abs=5e-8)


LABELS = st.integers(0, 2)


@given(st.lists(st.tuples(LABELS, LABELS), min_size=2, max_size=12))
def test_cohen_by_its_definition(pairs):
    left, right = zip(*pairs, strict=True)
    observed = sum(a == b for a, b in pairs) / len(pairs)
    expected = sum(a == b for a in left for b in right) / len(pairs) ** 2
    found = value(cohen(one_each(left, 3), one_each(right, 3).astype(float)))
    if expected == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx((observed - expected) / (1 - expected), abs=1e-9)
