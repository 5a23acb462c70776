"""Ids and seeds depend on content alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.stores.keys import SEED_BITS, canonical_json, derive_seed, digest, row_id

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_does_not_matter(value):
    assert digest(value) == digest(dict(reversed(value.items())))


@given(JSON, JSON)
def test_different_values_have_different_digests(a, b):
    assert (digest(a) == digest(b)) == (canonical_json(a) == canonical_json(b))


def test_what_has_no_canonical_form_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest({"x": math.nan})


@given(st.integers(0, 2**53 - 1), st.lists(st.text() | st.integers(), max_size=3))
def test_seeds_survive_json_number_parsers(root, parts):
    seed = derive_seed(root, *parts)
    assert 0 <= seed < 2**SEED_BITS
    assert int(float(seed)) == seed
    assert seed == derive_seed(root, *parts)


def test_seeds_differ_by_root_and_by_part():
    seeds = {derive_seed(root, "draw", n) for root in range(10) for n in range(100)}
    assert len(seeds) == 1000


def test_ids_name_their_kind():
    assert row_id("cand", ["a", 1]).startswith("cand-")
    assert row_id("cand", ["a", 1]) != row_id("cand", ["a", 2])
