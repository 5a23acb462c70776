"""Tables of figures: whole columns in a terminal of any width, and rows for programs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...stores.keys import Json
from ..lake.statistics.clustered_estimates import Estimate

Column = tuple[str, Sequence[str]]
"""A heading, and the cell of each row."""
EDGES = 3


def print_figures(console: Console, names: Sequence[Column], figures: Sequence[Column]) -> None:
    """Print columns of names and of figures; those that do not fit go into further tables."""
    room = console.width - EDGES - sum(map(_width, names))
    left = list(figures)
    while left:
        fitting = max(1, sum(total <= room for total in accumulate(map(_width, left))))
        console.print(_table(names, left[:fitting]))
        left = left[fitting:]


def _width(column: Column) -> int:
    heading, cells = column
    return 1 + max(map(len, [heading, *cells]))


def print_texts(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts, whose cells are folded if the terminal is narrow."""
    console.print(_table([(name, [row[n] for row in rows]) for n, name in enumerate(head)], []))


def _table(names: Sequence[Column], figures: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, _ in names:
        table.add_column(escape(heading), overflow="fold")
    for heading, _ in figures:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for row in zip(*(cells for _, cells in (*names, *figures)), strict=True):
        table.add_row(*map(escape, row))
    return table


def measure_columns(
    rows: Sequence[Mapping[str, Estimate]],
    headings: Mapping[str, str],
    plain: Collection[str] = (),
) -> list[Column]:
    """Return a column for each measure that a row has, with its interval.

    Measures are shares, in percent, except the `plain` ones.
    """
    return [
        (heading, [_cell(row.get(name), plain=name in plain) for row in rows])
        for name, heading in headings.items()
        if any(name in row for row in rows)
    ]


def _cell(found: Estimate | None, *, plain: bool) -> str:
    if found is None:
        return "-"
    known = [end for end in (found.value, found.low, found.high) if end is not None]
    value, *ends = (f"{end:.2f}" if plain else f"{100 * end:.0f}" for end in known)
    return f"{value} [{', '.join(ends)}]" if ends else value


def measure_fields(found: Mapping[str, Estimate], names: Iterable[str]) -> dict[str, Json]:
    """Return each measure's value, the ends of its interval, and the items that it is over."""
    fields = {"": "value", "_low": "low", "_high": "high", "_n": "n"}
    return {
        f"{name}{suffix}": getattr(found.get(name), field, None)
        for name in names
        for suffix, field in fields.items()
    }
