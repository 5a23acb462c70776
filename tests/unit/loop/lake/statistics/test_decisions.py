"""Better, not better, or undecided: decisions from results on the same prompts."""

import runpy
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.lake.statistics.clustered_bounds import cluster_sums, p_value
from lpfloop.loop.lake.statistics.decisions import (
    Decision,
    PairedResults,
    decide,
    holm,
    level_of_look,
)
from lpfloop.loop.lake.statistics.intervals import quantile, upper_tail

ALPHA = 0.03


def answer(before, after, clusters=None, *, alpha=ALPHA, worthwhile=0.01) -> Decision:
    """Decide; without clusters, each prompt is a separate cluster."""
    named = [f"prompt-{i}" for i in range(len(before))] if clusters is None else clusters
    results = PairedResults(before=before, after=after, clusters=named)
    return decide(results, alpha=alpha, worthwhile=worthwhile)


def flips(gained: int, lost: int, n: int) -> Decision:
    """Decide on `n` prompts with so many flips to right and to wrong."""
    before = [0.0] * gained + [1.0] * (n - gained)
    after = [1.0] * gained + [0.0] * lost + [1.0] * (n - gained - lost)
    return answer(before, after)


def test_students_distribution(subtests):
    for t, degrees, tail in ((2.571, 5, 0.025), (12.706, 1, 0.025), (-1.0, 1, 0.75)):
        with subtests.test(t=t):
            assert upper_tail(t, degrees) == pytest.approx(tail, abs=5e-5)
            if t > 0:
                assert quantile(tail, degrees) == pytest.approx(t, abs=6e-4)


def test_gain_loss_and_little():
    assert flips(60, 10, 600).answer == "better"
    assert flips(10, 60, 600).answer == "not better"
    assert flips(33, 27, 600).answer == "undecided"


def test_as_mcnemars_exact_test(subtests):
    for gained, lost in ((5, 0), (12, 2), (45, 25)):
        with subtests.test(gained=gained):
            changed = gained + lost
            exact = sum(comb(changed, k) for k in range(gained, changed + 1)) / 2**changed
            moves = [1.0] * gained + [-1.0] * lost + [0.0] * (600 - changed)
            found = p_value(cluster_sums([0.0] * 600, moves, list(map(str, range(600)))))
            assert 0.75 * exact < found < 2.1 * exact


def test_few_clusters_say_less():
    before, after = [0.0] * 60 + [1.0] * 540, [1.0] * 590 + [0.0] * 10
    alone = answer(before, after)
    stories = answer(before, after, [f"story-{i // 60}" for i in range(600)])
    assert alone.answer == "better"
    assert stories.answer == "undecided"
    assert stories.difference == pytest.approx(alone.difference)
    assert stories.clusters == 10


results = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 15)
    ),
    min_size=1,
    max_size=60,
)


@given(results)
def test_symmetry(rows):
    before, after, clusters = zip(*rows, strict=True)
    named = [str(c) for c in clusters]
    there, back = answer(before, after, named), answer(after, before, named)
    assert back.difference == pytest.approx(-there.difference)
    assert (back.gained, back.lost) == (there.lost, there.gained)
    if there.low is not None and there.high is not None:
        assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-9)
        assert there.low <= there.difference + 1e-9
        assert there.high >= there.difference - 1e-9
        assert -1 <= there.low <= there.high <= 1
    assert (there.low is None) == (back.low is None)


def test_levels_add_up():
    levels = [level_of_look(0.05, look) for look in range(1, 5001)]
    assert levels == sorted(levels, reverse=True)
    assert 0.0499 < sum(levels) < 0.05


def test_holm():
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


RUNS = 60
TOLERATED = 0.05 + 3 * (0.05 * 0.95 / RUNS) ** 0.5
"""At a true error of 5 %, chance exceeds this (three standard errors more) once in 1,000 times."""


def test_runs_that_gain_nothing_are_seldom_better(root):
    """In simulated runs; `benchmarks/verdicts.py` makes more of them, and measures the power."""
    benchmark = runpy.run_path(str(root / "benchmarks" / "verdicts.py"))
    found = benchmark["null_runs"](benchmark["NULL"][0], RUNS, seed=1)
    assert all(share <= TOLERATED for share in found.values()), found
