"""Copies, near copies and contamination: exact counts, recorded once, never blocking."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.contamination import overlaps
from lpfloop.loop.data.near_duplicates import GRAM, MINIMA, alike, signatures, similarity

LONG = "the train leaves the station at nine and arrives in the other town before it is noon"
OTHER = "she sells the seven small shells that her sister had found on the shore last summer"


def texts(*rows):
    return pl.DataFrame(rows, schema=["id", "group", "text"], orient="row")


def grams(words):
    if len(words) < GRAM:
        return {tuple(words)} if words else set()
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}


def jaccard(one, two):
    return len(one & two) / len(one | two)


WORDS = st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=40)


@given(WORDS, WORDS, st.integers(0, 40))
def test_estimate_is_near_jaccard(first, second, shared):
    one, two = first, first[:shared] + second
    found = signatures(pl.Series([" ".join(one), ", ".join(two).upper()]))
    (estimate,) = similarity(found, pl.Series([0]), pl.Series([1]))
    exact = jaccard(grams(one), grams(two))
    # Five standard deviations, and an allowance for the smallest sets.
    assert abs(estimate - exact) <= 5 * (0.25 / MINIMA) ** 0.5 + 1e-9
    if exact in (0, 1):
        assert estimate == pytest.approx(exact, abs=0.05)


def test_near_copies():
    changed = LONG.replace("noon", "night")
    found = alike(
        texts(("a1", "a", LONG), ("a2", "a", changed + "."), ("b1", "b", LONG), ("c", "c", OTHER))
    )
    assert found.within["row"].to_list() == [1]
    assert found.within["other"].to_list() == [0]
    assert found.within["similarity"][0] > 0.8
    assert set(found.across["row"]) == {0, 1, 2}


def test_held_out_prompt_in_train():
    long = f"{LONG} {OTHER}"
    train = asked(("t1", None, long), ("t2", None, "How many?"))
    held_out = asked(
        ("same", None, long.upper()),
        ("short", None, "how many"),
        ("piece", None, f"Well, {LONG}"),
        ("new", None, "nothing of that kind at all"),
    )
    assert set(overlaps(train, held_out)) == {"same", "short", "piece"}


def asked(*rows):
    schema = dict.fromkeys(("id", "family", "text"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")
