"""The first rows of a table, short enough to look at: as text, and as HTML for a notebook.

Only the shown rows are read; rows are counted only if the file's metadata gives their number.
Texts of models are escaped: control characters are made visible, and markup stays text.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import polars as pl

from ..data.sanitize import one_line
from ..lake.trace.html_page import safe

SHOWN = 8
"""How many rows are shown."""
CELL, HTML_CELL = 60, 300
"""How many characters of a value are shown."""
MOST = 2000
"""Of a longer value only this much is looked at."""
NARROWEST, GAP = 16, 2
SHORT, SHORT_ID = 24, 12
"""A column of values up to this length is shown whole, or not at all; of an id, its beginning."""
TEXTS = ("text", "prompt", "messages", "chosen", "rejected", "completion", "comment", "rationale")
"""The columns that are shown before all others: prompts, answers and judgements."""

Cells = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """The head of a table; `height` is None if more rows follow and their number is unknown."""

    table: str
    height: int | None
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    fault: str = ""

    @classmethod
    def of(cls, frame: pl.LazyFrame, table: str) -> "FirstRows":
        """Read the first rows of a frame; of a stored table, count the others, too."""
        try:
            head = frame.head(SHOWN + 1).collect()
            height = head.height if head.height <= SHOWN else None
            if height is None and table:
                height = int(frame.select(pl.len()).collect().item())
        except pl.exceptions.PolarsError as error:
            fault = one_line(str(error), limit=MOST)
            return cls(table=table, height=None, columns=(), rows=(), fault=fault)
        return cls(
            table=table,
            height=height,
            columns=tuple(head.columns),
            rows=tuple(head.head(SHOWN).rows()),
        )

    @property
    def title(self) -> str:
        """The numbers of rows and columns, and the table's name."""
        if self.fault:
            return f"rows that cannot be computed: {self.fault}"
        what = f"{self.table.replace('_', ' ')}: " if self.table else ""
        count = f"{self.height:,}" if self.height is not None else f"more than {len(self.rows):,}"
        noun = "row" if self.height == 1 else "rows"
        shown = len(self.rows)
        first = "" if shown == self.height else f"; the first {shown}, .collect() reads all"
        return f"{what}{count} {noun}, {len(self.columns)} columns{first}"

    @property
    def text(self) -> str:
        """The head as a table for a terminal, and the names of the columns that do not fit."""
        cells = self._cells(CELL)
        room = _fitting(self.columns, cells, shutil.get_terminal_size().columns)
        lines = [
            "  ".join(_clipped(line[n], width).ljust(width) for n, width in room.items())
            for line in ((self.columns, *cells) if self.rows else ())
        ]
        hidden = [name for n, name in enumerate(self.columns) if n not in room]
        more = [f"not shown: {', '.join(hidden)}"] if hidden else []
        return "\n".join((self.title, *(line.rstrip() for line in lines), *more))

    @property
    def html(self) -> str:
        """The head as an HTML table."""
        return f'<div class="lpfloop"><p>{safe(self.title)}</p>{self._table()}</div>'

    def _table(self) -> str:
        return html_table(self.columns, self._cells(HTML_CELL)) if self.rows else ""

    def _cells(self, limit: int) -> list[list[str]]:
        return [[cell(value, limit) for value in row] for row in self.rows]


def cell(value: object, limit: int) -> str:
    """Return a value as one line of at most `limit` characters."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _clipped(one_line(_told(value), limit=MOST), limit)


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _told(value: object) -> str:
    """Return a value as a text: of messages their contents, of ratings names and numbers."""
    if not isinstance(value, list):
        return str(value)
    items = cast("list[object]", value)
    return " ⏎ ".join(_item(item) for item in items)


def _item(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    fields = cast("Mapping[str, object]", item)
    if "content" in fields:
        return str(fields["content"])
    return f"{fields['name']} {fields['rating']}" if "rating" in fields else str(fields)


def html_table(columns: Sequence[str], rows: Cells) -> str:
    """Return an HTML table, every text in it escaped."""
    head = "".join(f"<th>{safe(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{safe(value)}</td>' for value in row)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _fitting(columns: Sequence[str], cells: Cells, room: int) -> dict[int, int]:
    """Return how wide each column is that there is room for: texts first, then others."""
    wanted = [max(len(line[n]) for line in (columns, *cells)) for n in range(len(columns))]
    texts = [n for n, name in enumerate(columns) if name in TEXTS]
    least = {n: min(wanted[n], NARROWEST) for n in texts}
    for number, width in enumerate(wanted):
        needed = min(width, SHORT_ID) if _is_id(columns[number]) else min(width, SHORT)
        if number not in least and sum(least.values()) + GAP * len(least) + needed <= room:
            least[number] = max(needed, 1)
    spare = room - sum(least.values()) - GAP * len(least)
    room_for = dict[int, int]()
    for number, width in sorted(least.items()):
        room_for[number] = width + max(0, min(spare, wanted[number] - width))
        spare -= room_for[number] - width
    return room_for


def _is_id(column: str) -> bool:
    return column.endswith(("_id", "_ids"))
