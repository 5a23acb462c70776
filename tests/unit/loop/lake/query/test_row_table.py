"""Tables in a terminal's width: no line is too long, no column vanishes silently."""

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lpfloop.loop.data.text import short_id
from lpfloop.loop.lake.query.row_table import LINES, DrawnColumn, print_figures, print_table
from lpfloop.stores.keys import row_id

NAMES = st.lists(st.text("abcxyz_", min_size=1, max_size=24), min_size=1, max_size=9, unique=True)


def printed(frame, width):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        print_table(frame, console)
    return captured.get()


@given(NAMES, st.data(), st.integers(30, 200))
def test_table_keeps_within_its_width(names, data, width):
    values = st.one_of(st.integers(), st.text("ab c", max_size=200), st.none())
    columns = {
        name: [str(v) for v in data.draw(st.lists(values, min_size=2, max_size=2))]
        for name in names
    }
    told = printed(pl.DataFrame(columns), width)
    table, _, left_out = told.partition("left out at ")
    assert all(len(line) <= width for line in table.splitlines())
    assert len(table.splitlines()) <= 2 * LINES + 30
    head = table.partition("─")[0].replace(" ", "").replace("\n", "")
    for name in names:
        shown = set(name) <= set(head) | {"_"}
        assert shown or re.search(rf"(: |, ){re.escape(name)}[,;]", left_out)


def test_texts_stay_longest_of_all_columns():
    frame = pl.DataFrame(
        {
            "candidate_id": [row_id("cand", ["a"])],
            "policy": ["m" * 40],
            "empty": [None],
            "text": ["one two " * 200],
        }
    )
    told = printed(frame, 60)
    assert "left out at 60 columns: policy, empty;" in " ".join(told.split())
    assert told.count("one") > 3
    assert "…" in told
    wide = printed(frame, 160)
    assert "left out" not in wide


def test_headings_break_behind_words():
    column = DrawnColumn(name="completion_tokens", cells=[], number=True)
    assert column.heading.split("\n") == ["completion_", "tokens"]
    assert column.least == len("completion_")


@pytest.mark.parametrize(
    ("identity", "shown"),
    [
        (row_id("cand", ["anything"]), row_id("cand", ["anything"])[: len("cand-") + 9]),
        ("0" * 64, "0" * 12),
        ("my-own-prompt-number-0123456789", "my-own-prompt-number-0123456789"),
    ],
)
def test_short_ids(identity, shown):
    assert short_id(identity) == shown


def test_every_figure_is_shown_at_any_width(subtests):
    figures = [(f"figure {n}", [f"{n}.5 [{n}, {n + 1}]"]) for n in range(4)]
    for width, tables in ((20, 4), (40, 2), (120, 1)):
        console = Console(width=width, color_system=None)
        with console.capture() as captured:
            print_figures(console, [("method", ["dpo"])], figures)
        out = captured.get()
        with subtests.test(width=width):
            assert all(cells[0] in out for _, cells in figures)
            assert out.count("dpo") == tables
