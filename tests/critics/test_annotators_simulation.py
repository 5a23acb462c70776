"""Who annotates, in which order, and what noise does: shares as the paper has them, exact seeds."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.pair_verdicts import PairChoice
from lpfloop.critics.annotators.simulate import (
    assign,
    coin,
    draw_key,
    reconciled,
    shown_swapped,
    without_asking,
)
from lpfloop.critics.judge import Reading

POOL = load_pool("alpacafarm")
N = 20_000
SWAPPED = "-ss---sss---"
ASSIGNED = ["strong_2", "weak_3", "weak_3", "weak_4"]
KEYS = [f"pair-{number}" for number in range(N)]
seeds = st.integers(0, 2**53 - 1)


def near(share: float, expected: float, n: int = N) -> bool:
    """Whether a share lies within five standard errors of what it should be."""
    return abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / n)


def test_every_annotator_is_as_likely_as_any_other():
    counts = Counter(assign(POOL, key, 0).name for key in KEYS)
    assert len(counts) == 13
    assert all(near(count / N, 1 / 13) for count in counts.values())


def test_half_of_the_pairs_are_shown_swapped():
    assert near(sum(shown_swapped(key, 0) for key in KEYS) / N, 0.5)


@pytest.mark.parametrize("p_flip", [0.0, 0.17, 0.25, 0.35, 0.5])
def test_the_mixture_turns_the_share_of_labels_and_saves_twice_as_many_calls(p_flip):
    """Who always says the same is contradicted with p_flip, and asked with 1 - 2 p_flip."""
    tossed = [coin(key, 0, p_flip) for key in KEYS]
    labels = ["first" if verdict is None else verdict for verdict in tossed]
    assert near(labels.count("second") / N, p_flip) or p_flip == 0 == labels.count("second")
    asked = tossed.count(None) / N
    assert near(asked, 1 - 2 * p_flip) or (p_flip in (0, 0.5) and asked == 1 - 2 * p_flip)


@pytest.mark.parametrize("accuracy", [0.65, 0.8, 1.0])
def test_a_noisy_annotator_agrees_as_often_as_the_mixture_bound_says(accuracy):
    """Agreement a becomes a (1 - p) + (1 - a) p."""
    right = sum(
        (number / N < accuracy) if verdict is None else verdict == "first"
        for number, verdict in enumerate(coin(key, 1, 0.25) for key in KEYS)
    )
    assert near(right / N, accuracy * 0.75 + (1 - accuracy) * 0.25)


def test_annotator_order_and_noise_are_drawn_apart():
    cells = Counter(
        (assign(POOL, key, 0).role == "strong", shown_swapped(key, 0), coin(key, 0, 0.25))
        for key in KEYS
    )
    for strong, swapped, verdict in cells:
        expected = (5 if strong else 8) / 13 / 2 * (1 / 2 if verdict is None else 1 / 4)
        assert near(cells[strong, swapped, verdict] / N, expected)


def test_keyed_on_the_instruction_all_pairs_of_a_prompt_share_their_draws():
    pairs = [f"pair-{number}" for number in range(64)]
    for keyed_on, expected in (("instruction", 1), ("pair", 2)):
        keys = [draw_key(keyed_on, pair=pair, instruction="x") for pair in pairs]
        assert len({shown_swapped(key, 0) for key in keys}) == expected
        assert len({coin(key, 0, 0.5) for key in keys}) == expected
        assert (len({assign(POOL, key, 0).name for key in keys}) == 1) == (expected == 1)


@given(seed=seeds, key=st.text())
def test_draws_depend_on_seed_and_key_alone(seed, key):
    assert assign(POOL, key, seed) == assign(POOL, key, seed)
    assert shown_swapped(key, seed) == shown_swapped(key, seed)
    assert coin(key, seed, 0.25) == coin(key, seed, 0.25)
    assert coin(key, seed, 0.0) is None
    assert coin(key, seed, 0.5) in ("first", "second")


@given(seed=seeds, key=st.text(), low=st.floats(0, 0.5), high=st.floats(0, 0.5))
def test_more_noise_keeps_the_coins_that_there_were(seed, key, low, high):
    """So runs with different rates of noise differ in no more than they must."""
    low, high = sorted((low, high))
    assert coin(key, seed, low) in (None, coin(key, seed, high))


def test_draws_are_those_of_every_other_machine():
    keys = [f"pair-{number}" for number in range(12)]
    assert "".join("s" if shown_swapped(key, 7) else "-" for key in keys) == SWAPPED
    assert [assign(POOL, key, 7).name for key in keys[:4]] == ASSIGNED


@pytest.mark.parametrize("p_flip", [-0.1, 0.51, math.nan])
def test_a_rate_that_is_none_is_refused(p_flip):
    with pytest.raises(ValueError, match="within 0 and 1/2"):
        coin("k", 0, p_flip)


def test_identical_outputs_are_a_tie_that_nobody_is_asked_about():
    assert without_asking("Red.", "Red.") == "tie"
    assert without_asking("Red.", "Red") is None


@pytest.mark.parametrize(
    ("as_given", "swapped", "expected"),
    [
        ("first", "first", "first"),
        ("second", "second", "second"),
        ("first", "second", "tie"),
        ("tie", "first", "tie"),
        ("tie", "tie", "tie"),
        (None, "first", None),
        ("first", None, None),
    ],
)
def test_both_orders_are_reconciled(as_given, swapped, expected):
    def verdict(preferred, reason):
        return Reading("scored" if preferred else reason, PairChoice(preferred))

    found = reconciled(verdict(as_given, "empty"), verdict(swapped, "refusal"))
    assert found.value.preferred == expected
    assert found.status == ("scored" if expected else "refusal" if as_given else "empty")
