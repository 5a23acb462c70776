"""How wide each column of a table is, and which columns a narrow terminal leaves out.

A column is never narrower than its heading or its minimum; a column that does not fit is left out
whole. Spare width is shared evenly.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

GAP = 2
"""The blank characters between two columns."""
_PIECE = re.compile(r"[^_ ]{1,20}[_ ]?|[_ ]")
"""Headings break behind these; a longer piece is an SQL expression, broken anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNeed:
    """A column: its heading, its least useful width, and the width that shows all of it.

    `keep` is its priority: if width is short, the last column of the lowest priority is left out
    first.
    """

    heading: str
    least: int
    most: int
    keep: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFit:
    """The widths of the columns that are shown, and the headings of those left out, in order."""

    widths: dict[str, int]
    left_out: tuple[str, ...]


def fit(columns: Sequence[ColumnNeed], width: int) -> ColumnFit:
    """Return the widths of a table's columns, the first of which is always shown."""
    kept = _kept(columns, width)
    widths = {column.heading: _least(column) for column in kept}
    spare = width - _taken(kept)
    spare = _share(widths, {column.heading: column.most for column in kept}, spare)
    _share(widths, {column.heading: cell_len(column.heading) for column in kept}, spare)
    left_out = tuple(column.heading for column in columns if column.heading not in widths)
    return ColumnFit(widths=widths, left_out=left_out)


def heading_lines(heading: str, width: int) -> list[str]:
    """Return a heading in lines of a width, broken behind its words."""
    lines = [""]
    for piece in _PIECE.findall(heading):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _least(column: ColumnNeed) -> int:
    pieces = (cell_len(piece.rstrip()) for piece in _PIECE.findall(column.heading))
    return max(column.least, 1, *pieces, 0)


def _taken(columns: Sequence[ColumnNeed]) -> int:
    return sum(map(_least, columns)) + GAP * (len(columns) - 1)


def _kept(columns: Sequence[ColumnNeed], width: int) -> list[ColumnNeed]:
    """Return the columns that there is room for."""
    kept = list(columns)
    while len(kept) > 1 and _taken(kept) > width:
        cheapest = min(column.keep for column in kept[1:])
        kept.remove([column for column in kept[1:] if column.keep == cheapest][-1])
    return kept


def _share(widths: dict[str, int], wanted: Mapping[str, int], spare: int) -> int:
    """Widen columns towards `wanted`, as evenly as `spare` allows; return the unused width."""
    wanting = sorted(wanted, key=lambda heading: wanted[heading])
    for place, heading in enumerate(wanting):
        rest = [h for h in wanting[place:] if widths[h] < wanted[h]]
        if heading in rest and spare > 0:
            even = (sum(widths[h] for h in rest) + spare) // len(rest)
            more = max(0, min(spare, min(wanted[heading], even) - widths[heading]))
            widths[heading] += more
            spare -= more
    return spare
