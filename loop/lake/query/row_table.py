# pyright: basic
"""Rows as a table for people, in the width of their terminal.

Columns that do not fit are left out whole and listed below. Texts are wrapped and cut; the two
answers of a pair share a column that marks their differences; neighbours that differ only in their
ids are merged into one row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...data.sanitize import one_line
from ...data.short_id import short_id
from ...data.text_wrap import tell
from ..trace.word_diff import marked_diff
from .column_fit import GAP, ColumnFit, ColumnNeed, fit, heading_lines

LONGEST = 1000
"""The characters of a cell that are looked at; its lines hold fewer."""
LINES, DIFF_LINES = 3, 5
"""The lines that a text may take in a cell, and the differences of two."""
SHORT_TEXT = 14
"""A column whose texts are at most this long is shown whole."""
LEAST_TEXT = 24
"""The width below which a column of longer texts is of no use."""
NOTHING, DATA, PROSE = range(3)
"""How dear a column is: one without anything in it is left out first, one of texts last."""
CHOSEN, REJECTED = "chosen", "rejected"
DIFFERENCE = "[-rejected-] {+chosen+}"
"""The heading of the merged answers of a pair, which explains the marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnColumn:
    """A column of a table; only a column of longer texts may be narrower than they are.

    `identity`: ids, which may differ between merged rows. `whole`: texts that are not broken.
    `is_prose`: sentences, which are left out last.
    """

    name: str
    cells: list[Text]
    number: bool = False
    identity: bool = False
    whole: bool = False
    is_prose: bool = False

    @property
    def need(self) -> ColumnNeed:
        """The widths that it needs, and its priority."""
        most = max((cell_len(cell.plain) for cell in self.cells), default=0)
        rigid = self.number or self.identity or self.whole or most <= SHORT_TEXT
        least = most if rigid else min(most, LEAST_TEXT)
        keep = NOTHING if not most else PROSE if self.is_prose else DATA
        return ColumnNeed(heading=self.name, least=least, most=most, keep=keep)


def print_table(shown: pl.DataFrame, *, is_list: bool) -> None:
    """Print rows; in a list, neighbours with the same texts are merged into one row."""
    columns = list(_columns(shown, is_list=is_list))
    print_columns(Console(), _together(columns) if is_list else columns)


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
    fitted = fit([column.need for column in columns], console.width)
    if title is not None:
        tell(console, title)
    console.print(_table(columns, fitted, console))
    if fitted.left_out:
        names = ", ".join(fitted.left_out)
        tell(console, f"left out at {console.width} columns: {names}; --json has all")


def _columns(shown: pl.DataFrame, *, is_list: bool) -> Iterator[DrawnColumn]:
    """Give the columns as they are drawn."""
    compared = is_list and {CHOSEN, REJECTED} <= set(shown.columns)
    for name, dtype in shown.schema.items():
        if compared and name == CHOSEN:
            both = shown.select(REJECTED, CHOSEN).iter_rows()
            told = [marked_diff(_text(rejected), _text(chosen)) for rejected, chosen in both]
            yield DrawnColumn(name=DIFFERENCE, cells=told, is_prose=True)
        elif not (compared and name == REJECTED):
            cells = [Text(_text(value)) for value in shown[name].to_list()]
            yield DrawnColumn(
                name=one_line(name, limit=LONGEST),
                cells=cells,
                number=dtype.is_numeric(),
                identity=name == "id" or name.endswith("_id"),
                is_prose=_of_texts(dtype) and any(" " in cell.plain for cell in cells),
            )


def _of_texts(dtype: pl.DataType) -> bool:
    """Whether values are texts, or conversations."""
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct):
        return any(field.name == "content" for field in dtype.inner.fields)
    return dtype == pl.String


def _together(columns: Sequence[DrawnColumn]) -> list[DrawnColumn]:
    """Merge rows that differ only in their ids, and add how many were merged."""
    texts = [place for place, column in enumerate(columns) if column.is_prose]
    if not texts or not any(column.identity for column in columns):
        return list(columns)
    told = [column.cells for column in columns if not column.identity]
    alike = groupby(range(len(told[0])), key=lambda row: tuple(cells[row].plain for cells in told))
    groups = [list(rows) for _, rows in alike]
    return [
        DrawnColumn(
            name=column.name,
            cells=[_times(column.cells[g[0]], len(g) if at == texts[-1] else 1) for g in groups],
            number=column.number,
            identity=column.identity,
            is_prose=column.is_prose,
        )
        for at, column in enumerate(columns)
    ]


def _times(cell: Text, times: int) -> Text:
    """Return a cell with how many rows have it in front: its end may be cut."""
    return cell if times == 1 else Text.assemble((f"x{times} ", "bold"), cell)


def _table(columns: Sequence[DrawnColumn], fitted: ColumnFit, console: Console) -> Table:
    shown = [column for column in columns if column.name in fitted.widths]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column in shown:
        width = fitted.widths[column.name]
        heading = Text("\n".join(heading_lines(column.name, width)))
        justify = "right" if column.number else "left"
        table.add_column(heading, width=width, justify=justify, no_wrap=True)
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(
            *(
                _cut(cell, fitted.widths[column.name], console, _lines(column))
                for cell, column in zip(cells, shown, strict=True)
            )
        )
    return table


def _lines(column: DrawnColumn) -> int:
    return DIFF_LINES if column.name == DIFFERENCE else LINES


def _cut(cell: Text, width: int, console: Console, lines: int) -> Text:
    """Return a cell in lines of a width; the rest becomes an ellipsis."""
    # So many characters take more lines than there are.
    wrapped = cell[: (lines + 1) * width].wrap(console, width, overflow="fold")
    if len(wrapped) > lines:
        last = wrapped[lines - 1]
        last.rstrip()
        last.truncate(width - 1)
        wrapped = [*wrapped[: lines - 1], Text.assemble(last, "…")]
    for line in wrapped:
        line.rstrip()
    return Text("\n").join(wrapped)


def _text(value: Any) -> str:
    """Return a cell's text on one line, cut to the longest that a cell can show."""
    text = _flat(value)
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
    return one_line(cut, limit=2 * LONGEST)


def _flat(value: Any) -> str:
    """Return a cell's text: messages as their contents, aspects as their ratings."""
    match value:
        case None:
            text = ""
        case float():
            text = _number(value)
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


def _number(value: float) -> str:
    """Return a number with four digits, and never without one before the point."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"  # noqa: PLR2004
