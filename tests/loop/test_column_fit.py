"""Columns in the width of a terminal: none too narrow, none cut, and none gone without a word."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.short_id import short_id
from lpfloop.loop.lake.query.column_fit import GAP, ColumnNeed, fit, heading_lines
from lpfloop.loop.lake.query.forms import Form
from lpfloop.loop.lake.query.row_output import write_frame
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
def test_a_table_keeps_within_its_width_and_names_what_it_leaves_out(columns, width):
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


@given(st.lists(NEEDS, min_size=2, max_size=8, unique_by=lambda c: c.heading), st.integers(1, 300))
def test_what_is_left_out_would_not_have_fitted(columns, width):
    found = fit(columns, width)
    cheapest = min((c.keep for c in columns if c.heading in found.left_out), default=None)
    if cheapest is not None:
        assert all(c.keep >= cheapest for c in columns[1:] if c.heading in found.widths)
        everything = fit(columns, 10_000).widths
        assert sum(everything.values()) + GAP * (len(columns) - 1) > width


def test_room_goes_to_those_that_want_it_evenly():
    texts = [
        ColumnNeed(heading=name, least=5, most=most)
        for name, most in zip("abc", (9, 50, 70), strict=True)
    ]
    assert fit(texts, 60 + 2 * GAP).widths == {"a": 9, "b": 25, "c": 26}
    assert fit(texts, 500).widths == {"a": 9, "b": 50, "c": 70}


def test_what_is_empty_goes_first_and_prose_last():
    columns = [
        ColumnNeed(heading="id", least=10, most=10, keep=1),
        ColumnNeed(heading="text", least=20, most=90, keep=2),
        ColumnNeed(heading="kind", least=10, most=10, keep=1),
        ColumnNeed(heading="parent", least=0, most=0, keep=0),
    ]
    assert fit(columns, 50).left_out == ("parent",)
    assert fit(columns, 40).left_out == ("kind", "parent")
    assert fit(columns, 20).left_out == ("text", "kind", "parent")


def test_a_heading_is_broken_behind_its_words():
    assert heading_lines("completion_tokens", 11) == ["completion_", "tokens"]
    assert heading_lines("completion_tokens", 17) == ["completion_tokens"]
    assert heading_lines("avg(case when x)", 8) == ["avg(case", "when x)"]


def test_an_id_is_as_short_as_it_can_be_shown_by_and_a_name_of_ones_own_is_whole():
    identity = row_id("cand", ["anything"])
    assert identity.startswith(short_id(identity))
    assert len(short_id(identity)) == len("cand-") + 9
    assert short_id("0" * 64) == "0" * 12
    assert short_id("my-own-prompt-number-0123456789") == "my-own-prompt-number-0123456789"


ROWS = pl.DataFrame(
    {
        "candidate_id": [row_id("cand", n) for n in range(5)],
        "reward": [0.123456789, 0.123456789, 0.123456789, 2.0, 0.123456789],
        "text": ["one and the same answer"] * 3 + ["another answer"] + ["one and the same answer"],
    }
)


def table(capfd, monkeypatch, frame, width=80, columns=()):
    monkeypatch.setenv("COLUMNS", str(width))
    write_frame(frame, Form.TABLE, columns)
    out, err = capfd.readouterr()
    assert all(len(line) <= width for line in out.splitlines())
    return out, err


def test_neighbours_that_differ_in_their_ids_alone_are_one_row_with_their_number(
    capfd, monkeypatch
):
    out, err = table(capfd, monkeypatch, ROWS, columns=ROWS.columns)
    assert out.count("one and the same answer") == 2
    assert "x3 one and the same answer" in out
    assert "x2" not in out, "they are not neighbours"
    assert short_id(ROWS["candidate_id"][0]) in out
    assert "0.1235" in out
    assert err == "5 rows\n"


def test_rows_that_sql_asked_for_stay_as_they_are(capfd, monkeypatch):
    out, _ = table(capfd, monkeypatch, ROWS)
    assert out.count("one and the same answer") == 4


def test_a_long_text_takes_a_few_lines_and_ends_with_an_ellipsis(capfd, monkeypatch):
    frame = pl.DataFrame({"n": [1], "text": ["word " * 100], "cjk": ["数学 " * 100]})
    out, _ = table(capfd, monkeypatch, frame, 60)
    assert len(out.splitlines()) == 2 + 3
    assert out.count("…") == 2


PAIR = {
    "prompt_id": ["p"],
    "chosen": [[{"role": "assistant", "content": f"{'the same ' * 30}is 15. Good."}]],
    "rejected": [[{"role": "assistant", "content": f"{'the same ' * 30}is 16. Good."}]],
}


@pytest.mark.parametrize("width", [50, 80, 200])
def test_a_pair_shows_where_its_answers_differ_however_late(capfd, monkeypatch, width):
    frame = pl.DataFrame(PAIR)
    out, _ = table(capfd, monkeypatch, frame, width, frame.columns)
    assert "[-16-]{+15+}" in out
    assert "[-rejected-]" in out
    assert out.count("the same") <= 3
