"""Annotators, orders and noise: frequencies as in the paper, exact seeds."""

import math
from collections import Counter

from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.comparison import (
    assign,
    coin,
    reconcile,
)
from lpfloop.critics.annotators.pair_verdicts import PairChoice
from lpfloop.critics.judge import Reading

POOL = load_pool("alpacafarm")
N = 10_000
KEYS = [f"pair-{number}" for number in range(N)]


def near(share: float, expected: float, n: int = N) -> bool:
    """Return whether a share is within five standard errors of the expected one."""
    return abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / n)


def test_annotators_are_equally_likely():
    counts = Counter(assign(POOL, key, 0).name for key in KEYS)
    assert len(counts) == 13
    assert all(near(count / N, 1 / 13) for count in counts.values())


def test_mixture_share_and_savings(subtests):
    """A constant annotator is contradicted with p_flip, and asked with 1 - 2 p_flip."""
    for p_flip in [0.0, 0.17, 0.25, 0.35, 0.5]:
        with subtests.test(p_flip=p_flip):
            tossed = [coin(key, 0, p_flip) for key in KEYS]
            labels = ["first" if verdict is None else verdict for verdict in tossed]
            assert near(labels.count("second") / N, p_flip) or p_flip == 0 == labels.count("second")
            asked = tossed.count(None) / N
            assert near(asked, 1 - 2 * p_flip) or (p_flip in (0, 0.5) and asked == 1 - 2 * p_flip)


def test_both_orders_are_reconciled():
    for as_given, swapped, expected in [
        ("first", "first", "first"),
        ("first", "second", "tie"),
        ("tie", "first", "tie"),
        (None, "first", None),
        ("first", None, None),
    ]:

        def verdict(preferred, reason):
            return Reading("scored" if preferred else reason, PairChoice(preferred))

        found = reconcile(verdict(as_given, "empty"), verdict(swapped, "refusal"))
        assert found.value.preferred == expected
        assert found.status == ("scored" if expected else "refusal" if as_given else "empty")
