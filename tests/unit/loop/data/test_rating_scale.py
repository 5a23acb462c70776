"""Rating scales of imported files."""

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.rating_scale import SCALES, number
from lpfloop.loop.data.row_fields import vote_of


@given(st.sampled_from(sorted(SCALES)), st.floats(-1, 10), st.floats(-1, 10))
def test_scale_keeps_the_order(name, one, other) -> None:
    scale = SCALES[name]
    low, high = sorted((one, other))
    assert scale.level(low) <= scale.level(high)
    assert [scale.level(scale.value(level)) for level in (-1, 0, 1)] == [-1, 0, 1]


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text()))
def test_non_number_gives_null(value) -> None:
    found = number(value)
    assert found is None or (found == float(value) and not isinstance(value, bool))
    assert vote_of(value) in (None, "first", "second", "tie")
