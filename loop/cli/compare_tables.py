"""The results of several runs, figure by figure, in all and for each task: a table for people."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..data.sanitize import one_line
from ..evaluation.compare_runs import INITIAL, Result
from ..evaluation.compared_columns import Column, told_lead
from ..lake.query.critic_scores import AGREEMENT, ALL
from ..lake.query.figures import COUNTS, place_of
from ..lake.query.policy_figures import RATING
from ..lake.query.row_table import print_columns, text_columns
from ..lake.query.told_figures import figure_label, told_value

TITLE = "By figure and task; changes are paired by prompt"
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


def print_by_task(console: Console, by_task: Mapping[str, Sequence[Result]]) -> None:
    """Print each figure of each result, and its change since M_0, for all prompts and each task."""
    named = {_key(result): _name(result) for found in by_task.values() for result in found}
    began = [key for key in named if key[0] == INITIAL]
    changed = [key for key in named if len(began) == 1 and key not in began]
    of_one = _of_one_task(by_task)
    rows = [
        row
        for task, found in by_task.items()
        for row in _rows(task, found, named, changed, of_one if task == ALL else ())
    ]
    if not rows:
        return
    heads = [*named.values(), *(f"{named[key]} since {INITIAL}" for key in changed)]
    numbers = [place for place, key in enumerate(named) if key in changed]
    # A result is followed by its change.
    order = [p for n in range(len(named)) for p in (n, *(_beside(n, numbers, len(named))))]
    columns = text_columns(
        ("figure", *(heads[place] for place in order)),
        [(row[0], *(row[1 + place] for place in order)) for row in rows],
    )
    console.print()
    print_columns(console, columns, title=TITLE)


def _beside(place: int, changed: Sequence[int], named: int) -> list[int]:
    """Return the column of the change of a result, if it has one."""
    return [named + changed.index(place)] if place in changed else []


def _key(result: Result) -> tuple[str, tuple[str, ...]]:
    return result.method, result.runs


def _name(result: Result) -> str:
    """Return a result's heading: its method, and its run if the names differ."""
    runs = ", ".join(result.runs)
    told = result.method if result.method in (INITIAL, runs) else runs
    return one_line(told, limit=NAME)


def _rows(
    task: str,
    found: Sequence[Result],
    named: Mapping[tuple[str, tuple[str, ...]], str],
    changed: Sequence[tuple[str, tuple[str, ...]]],
    without: Collection[str],
) -> Iterator[list[str]]:
    """Yield a row for each figure of a task: every result's value, then every change."""
    by_key = {_key(result): result for result in found}
    rival = next((result for result in found if result.method == INITIAL), None)
    metrics = {metric for result in found for metric in result.numbers if _is_shown(metric)}
    for metric in sorted(metrics - set(without), key=place_of):
        yield [
            f"{one_line(task, limit=NAME)}: {figure_label(metric)}",
            *(_value(by_key.get(key), metric) for key in named),
            *(told_lead(by_key.get(key), rival, metric) for key in changed),
        ]


def _of_one_task(by_task: Mapping[str, Sequence[Result]]) -> set[str]:
    """Return the figures that a single task has, which all prompts together need not repeat."""
    tasks = [{m for r in found for m in r.numbers} for t, found in by_task.items() if t != ALL]
    every = [metric for metrics in tasks for metric in metrics]
    return {metric for metric in every if len(tasks) > 1 and every.count(metric) == 1}


def _is_shown(metric: str) -> bool:
    return metric not in (*COUNTS, AGREEMENT) and not metric.startswith(RATING)


def _value(result: Result | None, metric: str) -> str:
    measure = None if result is None else result.numbers.get(metric)
    if measure is None:
        return "-"
    return told_value(metric, measure.value)
