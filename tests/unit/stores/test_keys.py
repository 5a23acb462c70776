"""Ids and seeds depend on content alone."""

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.stores.keys import SEED_BITS, canonical_json, derive_seed, digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON))
def test_key_order_ignored(value):
    assert digest(value) == digest(dict(reversed(value.items())))


@given(JSON, JSON)
def test_different_values_differ(a, b):
    assert (digest(a) == digest(b)) == (canonical_json(a) == canonical_json(b))


@given(st.integers(0, 2**53 - 1), st.lists(st.text() | st.integers(), max_size=3))
def test_seeds_survive_json(root, parts):
    seed = derive_seed(root, *parts)
    assert 0 <= seed < 2**SEED_BITS
    assert int(float(seed)) == seed
    assert seed == derive_seed(root, *parts)
