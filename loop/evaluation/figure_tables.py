"""Tables of figures for a terminal: names on the left, and as many columns as fit beside them."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Columns = Mapping[str, Sequence[str]]
"""The cells of each column, by its heading."""
EDGES = 3


def print_figures(console: Console, names: Columns, figures: Columns) -> None:
    """Print columns of names and of figures; those that do not fit go into further tables."""
    room = console.width - EDGES - sum(map(_width, names.items()))
    left = list(figures.items())
    while left:
        fitting = max(1, sum(total <= room for total in accumulate(map(_width, left))))
        console.print(_table(names, dict(left[:fitting])))
        left = left[fitting:]


def _width(column: tuple[str, Sequence[str]]) -> int:
    heading, cells = column
    return 1 + max(map(len, [heading, *cells]))


def _table(names: Columns, figures: Columns) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in names:
        table.add_column(escape(heading), overflow="fold")
    for heading in figures:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for row in zip(*names.values(), *figures.values(), strict=True):
        table.add_row(*map(escape, row))
    return table
