"""Kappas are those of the published examples, of a computation by hand, and of their definition."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.evaluation.judgments import JudgedOutput, Judgment, OutputPair, collect
from lpfloop.loop.evaluation.kappas import SHARED_PAIRS, annotator_kappas, cohen, fleiss
from lpfloop.loop.lake.statistics.bootstrap import estimates

TEXTBOOK = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]
"""Fourteen raters, ten subjects, five categories: the usual worked example, kappa 0.210."""
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


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        ([[20, 5], [10, 15]], 0.4),
        ([[45, 15], [25, 15]], 0.1304),
        ([[25, 35], [5, 35]], 0.2593),
        ([[0, 4, 1], [0, 8, 0], [0, 1, 5]], 0.4842),
        ([[3, 0], [0, 4]], 1.0),
        ([[0, 3], [3, 0]], -1.0),
    ],
)
def test_cohens_kappa_is_that_of_textbooks_and_of_sas(table, kappa):
    assert of_table(table) == pytest.approx(kappa, abs=5e-5)


def test_fleiss_kappa_is_that_of_the_textbook():
    assert value(fleiss(np.array(TEXTBOOK))) == pytest.approx(0.20993, abs=5e-6)


def test_fleiss_kappa_is_that_of_the_paper():
    counts = np.array([[row.count(str(n)) for n in range(1, 6)] for row in DIAGNOSES.split()])
    assert value(fleiss(counts)) == pytest.approx(0.4302445, abs=5e-8)


def test_one_label_alone_has_no_kappa():
    counts = np.array([[3, 0, 0], [2, 0, 0]])
    assert math.isnan(value(fleiss(counts)))
    assert estimates([fleiss(counts)], np.arange(2), draws=100, seed=0) == [None]
    assert math.isnan(value(cohen(counts, np.array([[1.0, 0, 0]] * 2))))


def test_a_split_majority_agrees_in_part():
    shares = np.array([[0.5, 0.5, 0], [0, 1, 0]])
    # Observed 1.5 of 2; expected: a half of 1 against a quarter, and a half against three.
    observed, expected = 0.75, 0.5 * 0.25 + 0.5 * 0.75
    kappa = (observed - expected) / (1 - expected)
    assert value(cohen(np.array([[1, 0, 0], [0, 1, 0]]), shares)) == pytest.approx(kappa)


LABELS = st.integers(0, 2)


@given(st.lists(st.tuples(LABELS, LABELS), min_size=2, max_size=12))
def test_cohens_kappa_is_agreement_beyond_that_of_shuffled_verdicts(pairs):
    left, right = zip(*pairs, strict=True)
    observed = sum(a == b for a, b in pairs) / len(pairs)
    expected = sum(a == b for a in left for b in right) / len(pairs) ** 2
    found = value(cohen(one_each(left, 3), one_each(right, 3).astype(float)))
    if expected == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx((observed - expected) / (1 - expected), abs=1e-9)


@given(st.lists(st.lists(LABELS, max_size=5), min_size=1, max_size=6))
def test_fleiss_kappa_is_agreement_of_two_verdicts_on_a_pair_beyond_that_of_any_two(votes):
    counts = np.array([[given.count(label) for label in range(3)] for given in votes])
    several = [given for given in votes if len(given) > 1]
    found = value(fleiss(counts))
    if not several:
        assert math.isnan(found)
        return
    agreed = [np.mean([a == b for a, b in combinations(given, 2)]) for given in several]
    every = Counter(label for given in several for label in given)
    expected = sum((n / every.total()) ** 2 for n in every.values())
    if math.isclose(expected, 1):
        assert math.isnan(found)
    else:
        observed = float(np.mean(agreed))
        assert found == pytest.approx((observed - expected) / (1 - expected), abs=1e-9)


def test_instructions_are_resampled_whole():
    right = [0, 1, 2, 0, 1, 2, 1, 0]
    left = [0, 1, 2, 0, 1, 1, 2, 2]
    measure = cohen(one_each(left, 3), one_each(right, 3).astype(float))
    alone, whole = (
        estimates([measure], clusters, draws=400, seed=1)[0]
        for clusters in (np.arange(8), np.array([0, 0, 0, 0, 0, 1, 1, 1]))
    )
    assert alone.value == whole.value
    assert (alone.instructions, whole.instructions) == (8, 2)
    # Of two instructions, one agrees throughout: half of the resamples hold one of them alone.
    assert whole.high == pytest.approx(1)
    assert whole.high - whole.low > alone.high - alone.low


def judged(annotator, number, preferred, *, human):
    first, second = JudgedOutput(key="a"), JudgedOutput(key="b")
    pair = OutputPair(instruction=f"question {number}", first=first, second=second)
    return Judgment(pair=pair, annotator=annotator, human=human, preferred=preferred)


def test_every_two_annotators_with_enough_pairs_in_common_have_a_kappa():
    sides = ("first", "second", "tie")
    items = [
        judged(name, number, sides[(number + (number % off == 0)) % 3], human=name != "gpt")
        for name, off in (("human:a", 50), ("human:b", 5), ("gpt", 3))
        for number in range(1, SHARED_PAIRS + 1)
        if name != "gpt" or number > 1
    ]
    found = annotator_kappas(collect(items), draws=100, seed=0)
    assert [(each.first, each.second, each.pairs) for each in found] == [
        ("human:a", "human:b", SHARED_PAIRS)
    ]
    (two,) = found
    assert two.agreement.value == 16 / 20
    mine = [number % 3 for number in range(1, 21)]
    others = [(number + (number % 5 == 0)) % 3 for number in range(1, 21)]
    table = [
        [sum(p == (i, j) for p in zip(mine, others, strict=True)) for j in range(3)]
        for i in range(3)
    ]
    assert two.cohen.value == pytest.approx(of_table(table))
