"""Columns in a terminal's width: none too narrow, none cut, none dropped silently."""

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.short_id import short_id
from lpfloop.loop.lake.query.column_fit import GAP, ColumnNeed, fit, heading_lines
from lpfloop.stores.keys import row_id

WORDS = st.text("abcxyz", min_size=1, max_size=12)
NEEDS = st.builds(
    lambda words, least, more, keep: ColumnNeed(
        heading="_".join(words), least=least, most=least + more, keep=keep
    ),
    st.lists(WORDS, min_size=1, max_size=3),
    st.integers(0, 30),
    st.integers(0, 200),
    st.integers(0, 2),
)


@given(st.lists(NEEDS, min_size=1, max_size=12, unique_by=lambda c: c.heading), st.integers(1, 300))
def test_table_keeps_within_its_width(columns, width):
    found = fit(columns, width)
    shown = [column for column in columns if column.heading in found.widths]
    assert columns[0] in shown
    assert [c.heading for c in columns if c not in shown] == list(found.left_out)
    taken = sum(found.widths.values()) + GAP * (len(shown) - 1)
    assert taken <= width or len(shown) == 1
    for column in shown:
        own = found.widths[column.heading]
        assert own >= column.least
        assert own <= max(column.most, len(column.heading), column.least)
        lines = heading_lines(column.heading, own)
        assert "".join(lines) == column.heading
        assert all(len(line) <= own for line in lines)


def test_short_ids():
    identity = row_id("cand", ["anything"])
    assert identity.startswith(short_id(identity))
    assert len(short_id(identity)) == len("cand-") + 9
    assert short_id("0" * 64) == "0" * 12
    assert short_id("my-own-prompt-number-0123456789") == "my-own-prompt-number-0123456789"
