"""Tables of short texts for a terminal: nothing is cut, whatever its width."""

from collections.abc import Sequence
from itertools import accumulate

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
