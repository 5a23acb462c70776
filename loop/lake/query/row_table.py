# pyright: basic
"""Rows as a table for people, in the width of their terminal.

Columns that do not fit are left out whole and listed below. Texts are wrapped and cut; the two
answers of a pair share a column that marks their differences.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ...data.sanitize import one_line
from ...data.short_id import short_id
from ...data.text_wrap import print_wrapped
from ..trace.word_diff import AROUND, STYLES, TOKEN, Span, word_diff

LONGEST = 1000
"""The characters of a cell that are looked at; its lines hold fewer."""
LINES = 3
"""The lines that a text may take in a cell."""
SHORT_TEXT, LEAST_TEXT = 14, 24
"""Columns of shorter texts are shown whole; of longer ones, a narrower column is of no use."""
HEADING = 20
"""A longer word of a heading is an SQL expression, which is broken anywhere."""
GAP = 2
CHOSEN, REJECTED = "chosen", "rejected"
CONTEXT, MOST = 3, 16
"""The most words that a short diff shows of the context next to a change, and of a change."""
DIFFERENCE = "[-rejected-] {+chosen+}"
"""The heading of the merged answers of a pair, which explains the marks."""
_WORD_END = re.compile(r"_(?=.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnColumn:
    """A column of a table; only a column of longer texts may be narrower than they are.

    `whole`: ids, and texts that are not broken. `is_prose`: sentences, which are left out last.
    """

    name: str
    cells: list[Text]
    number: bool = False
    whole: bool = False
    is_prose: bool = False

    @property
    def most(self) -> int:
        """The width that shows all of its cells."""
        return max((cell_len(cell.plain) for cell in self.cells), default=0)

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


def print_table(shown: pl.DataFrame, *, is_list: bool, console: Console | None = None) -> None:
    """Print rows; in a list of pairs, both answers share a column."""
    print_columns(console or Console(), list(_columns(shown, is_list=is_list)))


def text_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1
) -> list[DrawnColumn]:
    """Return unbroken columns of short texts, the first `left` of them names."""
    return [
        DrawnColumn(
            name=heading,
            cells=[Text(row[place]) for row in rows],
            number=place >= left,
            whole=True,
        )
        for place, heading in enumerate(headings)
    ]


def print_columns(
    console: Console, columns: Sequence[DrawnColumn], *, title: str | None = None
) -> None:
    """Print a table in the width of a console, and the names of the columns that do not fit."""
    if title is not None:
        print_wrapped(console, title)
    kept = _fitting_columns(columns, console.width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column in kept:
        table.add_column(
            Text(column.heading, overflow="fold"),
            width=column.least if column.is_fixed else None,
            min_width=column.least,
            justify="right" if column.number else "left",
        )
    for cells in zip(*(column.cells for column in kept), strict=True):
        table.add_row(*map(_FirstLines, cells))
    console.print(table)
    left_out = ", ".join(column.name for column in columns if column not in kept)
    if left_out:
        print_wrapped(console, f"left out at {console.width} columns: {left_out}; --json has all")


def _fitting_columns(columns: Sequence[DrawnColumn], width: int) -> list[DrawnColumn]:
    """Return the columns that there is room for: the first one, and rather texts than empty ones.

    Of equally useful columns the last one is left out.
    """
    kept = list(columns)
    while len(kept) > 1 and sum(c.least + GAP for c in kept) - GAP > width:
        rest = kept[:0:-1]
        kept.remove(min(rest, key=lambda column: (column.is_prose, column.most > 0)))
    return kept


def _columns(shown: pl.DataFrame, *, is_list: bool) -> Iterator[DrawnColumn]:
    """Give the columns as they are drawn."""
    compared = is_list and {CHOSEN, REJECTED} <= set(shown.columns)
    for name, dtype in shown.schema.items():
        if compared and name == CHOSEN:
            both = shown.select(REJECTED, CHOSEN).iter_rows()
            columns = [
                _marked_diff(cell_text(rejected), cell_text(chosen)) for rejected, chosen in both
            ]
            yield DrawnColumn(name=DIFFERENCE, cells=columns, is_prose=True)
        elif not (compared and name == REJECTED):
            cells = [Text(cell_text(value)) for value in shown[name].to_list()]
            yield DrawnColumn(
                name=one_line(name, limit=LONGEST),
                cells=cells,
                number=dtype.is_numeric(),
                whole=name == "id" or name.endswith("_id"),
                is_prose=_of_texts(dtype) and any(" " in cell.plain for cell in cells),
            )


def _of_texts(dtype: pl.DataType) -> bool:
    """Whether values are texts, or conversations."""
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct):
        return any(field.name == "content" for field in dtype.inner.fields)
    return dtype == pl.String


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


def _marked_diff(old: str, new: str) -> Text:
    """Return in short how `new` differs, on one line: changes with a few words of context."""
    spans = word_diff(old, new)
    text = Text()
    for place, span in enumerate(spans):
        shown = _beside(span, first=not place, last=place == len(spans) - 1)
        before, after = AROUND[span.kind]
        space = " " if shown.endswith(" ") else ""
        text.append(f"{before}{shown.rstrip()}{after}{space}", STYLES[span.kind])
    return text


def _beside(span: Span, *, first: bool, last: bool) -> str:
    """Return a stretch without its middle, and without an end that is not next to a change."""
    words = TOKEN.findall(span.text)
    if span.kind != "same":
        return span.text if len(words) <= MOST else f"{''.join(words[:MOST])}… "
    if first and last:
        return span.text
    head, tail = (0 if first else CONTEXT), (0 if last else CONTEXT)
    if len(words) <= head + tail + 1:
        return span.text
    return f"{''.join(words[:head])}… {''.join(words[len(words) - tail :])}"
