"""The results of several runs, figure by figure, in all and for each task: a table for people."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..data.sanitize import one_line
from ..evaluation.compare_runs import INITIAL, Result
from ..evaluation.compared_columns import Column, told_lead
from ..evaluation.comparison_rows import result_named
from ..lake.query.critic_scores import AGREEMENT
from ..lake.query.figures import COUNTS, place_of
from ..lake.query.policy_figures import RATING, SUCCESSES
from ..lake.query.row_table import print_columns, text_columns
from ..lake.query.told_figures import figure_label, told_value

NAME = 30
EDGES = 3


def fitted_tables(names: Sequence[str], columns: Sequence[Column], width: int) -> Iterator[Table]:
    """Give tables of as many columns as there is room for, each with the names of the rows."""
    room = width - EDGES - max(map(len, ["Method", *names]))
    left = list(columns)
    while left:
        sizes = [1 + max(map(len, [heading, *cells])) for heading, cells in left]
        fitting = max(1, sum(total <= room for total in accumulate(sizes)))
        yield _named_rows(names, left[:fitting])
        left = left[fitting:]


def _named_rows(names: Sequence[str], columns: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Method", overflow="fold")
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for number, name in enumerate(names):
        table.add_row(escape(name), *(escape(cells[number]) for _, cells in columns))
    return table


def print_texts(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts, whose cells are folded if the terminal is narrow."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in head:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def print_by_task(
    console: Console, by_task: Mapping[str, Sequence[Result]], against: str | None
) -> None:
    """Print each figure of each result with its lead over one, for all prompts and each task."""
    heads = {(r.method, r.runs): _name(r) for found in by_task.values() for r in found}
    rows = [
        (
            f"{one_line(task, limit=NAME)}: {figure_label(metric)}",
            *_cells(
                metric, found, [*heads], None if against is None else result_named(against, found)
            ),
        )
        for task, found in by_task.items()
        for metric in sorted({m for r in found for m in r.numbers if _is_shown(m)}, key=place_of)
    ]
    if rows:
        lead = "" if against is None else f", with the lead over {against}, paired by prompt"
        console.print()
        print_columns(
            console,
            text_columns(("figure", *heads.values()), rows),
            title=f"By figure and task{lead}",
        )


def _cells(
    metric: str,
    found: Sequence[Result],
    keys: Sequence[tuple[str, tuple[str, ...]]],
    rival: Result | None,
) -> Iterator[str]:
    """Give the value of each result, and its lead over a rival."""
    by_key = {(result.method, result.runs): result for result in found}
    for result in map(by_key.get, keys):
        measure = None if result is None else result.numbers.get(metric)
        lead = told_lead(result, rival, metric)
        value = "-" if measure is None else told_value(metric, measure.value)
        yield value if lead == "-" else f"{value} {lead}"


def _name(result: Result) -> str:
    """Return a result's heading: its method, and its run if the names differ."""
    runs = ", ".join(result.runs)
    told = result.method if result.method in (INITIAL, runs) else runs
    return one_line(told, limit=NAME)


def _is_shown(metric: str) -> bool:
    # The parts of `verified` and of `approval` are not repeated.
    return metric not in (*COUNTS, AGREEMENT, *SUCCESSES) and not metric.startswith(RATING)
