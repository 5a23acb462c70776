# pyright: basic
"""Tables in a terminal: lists of rows, and figures.

Columns of a list that do not fit are left out whole and named below it; its texts are wrapped and
cut. Columns of figures that do not fit continue in another table.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import polars as pl
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ...data.text import one_line, print_wrapped, short_id

LONGEST = 1000
"""The characters of a cell that are looked at; its lines hold fewer."""
LINES = 3
"""The lines that a text may take in a cell."""
SHORT_TEXT, LEAST_TEXT = 14, 24
"""Columns of shorter texts are shown whole; of longer ones, a narrower column is of no use."""
HEADING = 20
"""A longer word of a heading is an SQL expression, which is broken anywhere."""
GAP = 2
_WORD_END = re.compile(r"_(?=.)")

Column = tuple[str, Sequence[str]]
"""A heading, and the cell of each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnColumn:
    """A column of a list; only a column of longer texts may be narrower than they are.

    `whole`: numbers and ids, which are not broken. `is_prose`: sentences, which are left out last.
    """

    name: str
    cells: list[str]
    number: bool = False
    whole: bool = False
    is_prose: bool = False

    @property
    def most(self) -> int:
        """The width that shows all of its cells."""
        return max(map(cell_len, self.cells), default=0)

    @property
    def is_fixed(self) -> bool:
        """Whether its cells may not be broken."""
        return self.number or self.whole or self.most <= SHORT_TEXT

    @property
    def heading(self) -> str:
        """The name; behind its words it is broken if the cells are narrower."""
        return self.name if len(self.name) <= self.most else _WORD_END.sub("_\n", self.name)

    @property
    def least(self) -> int:
        """The width below which the column is left out."""
        words = max(map(cell_len, re.split(r"\s", self.heading)), default=0)
        most = self.most if self.is_fixed else min(self.most, LEAST_TEXT)
        return max(most, min(words, HEADING), 1)


@dataclass(frozen=True, slots=True)
class _FirstLines:
    """A text of which only the first lines are drawn; the rest becomes an ellipsis."""

    text: Text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        # So many characters take more lines than are drawn.
        lines = self.text[: (LINES + 1) * width].wrap(console, width, overflow="fold")
        for line in lines[:LINES]:
            line.rstrip()
        if len(lines) > LINES:
            lines[LINES - 1].truncate(width - 1)
            lines[LINES - 1].append("…")
        yield Text("\n").join(lines[:LINES])


def print_table(shown: pl.DataFrame, console: Console | None = None) -> None:
    """Print rows in the width of a console, and the names of the columns that do not fit."""
    console = console or Console()
    columns = [_drawn(shown[name]) for name in shown.columns]
    kept = list(columns)
    while len(kept) > 1 and sum(c.least + GAP for c in kept) - GAP > console.width:
        # The first column stays; of equally useful ones the last is left out.
        kept.remove(min(kept[:0:-1], key=lambda column: (column.is_prose, column.most > 0)))
    table = _table()
    for column in kept:
        table.add_column(
            Text(column.heading, overflow="fold"),
            width=column.least if column.is_fixed else None,
            min_width=column.least,
            justify="right" if column.number else "left",
        )
    for cells in zip(*(column.cells for column in kept), strict=True):
        table.add_row(*(_FirstLines(Text(cell)) for cell in cells))
    console.print(table)
    left_out = ", ".join(column.name for column in columns if column not in kept)
    if left_out:
        print_wrapped(console, f"left out at {console.width} columns: {left_out}; --json has all")


def print_figures(console: Console, names: Sequence[Column], figures: Sequence[Column]) -> None:
    """Print columns of names and of figures; those that do not fit go into further tables."""
    room = console.width - GAP - 1 - sum(map(_width, names))
    left = list(figures)
    while left:
        fitting = max(1, sum(total <= room for total in accumulate(map(_width, left))))
        _print_columns(console, names, left[:fitting])
        left = left[fitting:]


def print_texts(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 0
) -> None:
    """Print a table of texts, which are folded if the terminal is narrow.

    With `left`, only so many columns are texts; the others are figures.
    """
    columns = [(name, [row[n] for row in rows]) for n, name in enumerate(headings)]
    if left:
        print_figures(console, columns[:left], columns[left:])
    else:
        _print_columns(console, columns, [])


def _width(column: Column) -> int:
    heading, cells = column
    return 1 + max(cell_len(text) for text in (*heading.split("\n"), *cells))


def _print_columns(console: Console, names: Sequence[Column], figures: Sequence[Column]) -> None:
    table = _table()
    for heading, _ in names:
        table.add_column(Text(heading), overflow="fold")
    for heading, _ in figures:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for row in zip(*(cells for _, cells in (*names, *figures)), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))


def _drawn(column: pl.Series) -> DrawnColumn:
    """Return a column of rows as it is drawn."""
    name, dtype = column.name, column.dtype
    cells = [cell_text(value) for value in column.to_list()]
    is_conversation = (
        isinstance(dtype, pl.List)
        and isinstance(dtype.inner, pl.Struct)
        and any(field.name == "content" for field in dtype.inner.fields)
    )
    return DrawnColumn(
        name=one_line(name, limit=LONGEST),
        cells=cells,
        number=dtype.is_numeric(),
        whole=name == "id" or name.endswith("_id"),
        is_prose=(is_conversation or dtype == pl.String) and any(" " in cell for cell in cells),
    )


def cell_text(value: Any) -> str:
    """Return a value on one line, cut to the longest that a cell can show.

    Messages become their contents, aspects their ratings; hidden characters are made visible.
    """
    text = _flat(value)
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
    return one_line(cut, limit=2 * LONGEST)


def _flat(value: Any) -> str:
    match value:
        case None:
            text = ""
        case float():
            # Four digits, and never without one before the point.
            text = f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"  # noqa: PLR2004
        case list():
            text = "; ".join(_flat(item) for item in value)
        case {"content": content}:
            text = str(content)
        case {"name": name, "rating": rating}:
            text = f"{name} {rating}"
        case dict():
            text = ", ".join(f"{key}: {_flat(item)}" for key, item in value.items())
        case str():
            text = short_id(value)
        case _:
            text = str(value)
    return text
