"""The results of a run's models as tables for a terminal: figures of any task, and probes.

The usual table has a line for each figure and a column for each model, and shows the change of one
model; the wide one has a line for each model, with every change.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...stores.records import Evaluation, Scope
from ..data.sanitize import one_line
from ..data.splits import HELD_OUT
from ..data.text_wrap import tell
from ..lake.query.flips import LostMost
from ..lake.query.forgetting import FALL, FALL_OVERALL, PASSED, PREFIX, alarming, is_probe
from ..lake.query.model_figures import MeasuredModel, ModelFigure, RunResults
from ..lake.query.policy_figures import WIN_RATE
from ..lake.query.row_table import print_columns, text_columns
from ..lake.query.told_figures import (
    figure_label,
    lost_line,
    split_name,
    told_change,
    told_interval,
    told_levels,
    told_of,
    told_value,
)
from ..lake.statistics.share_interval import share_interval

NO_WIN_RATE = (
    "no win-rate was measured: a critic rates one answer at a time, so name who compares two "
    "(annotation.strong.model) and set assessment.reference=initial"
)
LABEL, NAME = 26, 60
"""The width that a label may take, and a name of a group."""
GAP, EDGES = 1, 2
LEAST = 2
"""How many models are shown however narrow the terminal is: the first and the one that changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FigureBlock:
    """The figures of one scope: for each, the models' by iteration."""

    title: str
    figures: tuple[tuple[str, dict[int, ModelFigure]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the usual table: a title, or a figure of the models by iteration."""

    label: str
    of: dict[int, ModelFigure]
    change: str
    title: bool = False
    first: bool = False


def print_results(
    console: Console,
    results: RunResults,
    *,
    wide: bool = False,
    lost: LostMost | None = None,
    where: str = "",
) -> None:
    """Print the figures of a run's models, and the group that lost most.

    `where` is the option that names the lake, after a space.
    """
    if not results.rows:
        return
    told = results.told.iteration
    if wide:
        for table in _wide_tables(results):
            console.print(table)
    else:
        table, left_out = _table(results, console.width)
        console.print(table)
        if left_out:
            tell(console, f"not shown for want of width: {', '.join(left_out)}; --wide shows all")
    levels = told_levels(row for row in results.rows if wide or row.iteration == told)
    if levels is not None:
        tell(console, levels)
    if lost is not None:
        tell(console, lost_line(lost, where))
    if wide and all(row.figure != WIN_RATE.name for row in results.rows):
        tell(console, NO_WIN_RATE)


def _title(results: RunResults) -> str:
    split = results.split or HELD_OUT
    figures = {row.figure for row in results.rows}
    what = f", {figure_label(figures.pop())}" if len(figures) == 1 else ""
    return f"Results on {split_name(split)}{what}"


def _blocks(results: RunResults) -> list[_FigureBlock]:
    """Return the figures by scope, none of them twice.

    A single task equals all prompts and is left out; figures of only one task are listed under that
    task, not under all prompts.
    """
    places: dict[tuple[Scope, str], None] = {(row.scope, row.name): None for row in results.rows}
    tasks = [place for place in places if place[0] == "task"]
    shown = [p for p in places if p not in tasks or len(tasks) > 1 or ("all", "") not in places]
    eval_sets = [_told(results, *place) for place in places if place[0] == "eval_set"]
    shown = [p for p in shown if p[0] != "task" or _told(results, *p) not in eval_sets]
    measured = {(row.name, row.figure) for row in results.rows if row.scope == "task"}
    of_one = {f for _, f in measured if len(tasks) > 1 and sum(f == g for _, g in measured) == 1}
    return [_block(results, *place, of_one if place[0] == "all" else ()) for place in shown]


def _told(results: RunResults, scope: Scope, name: str) -> frozenset[tuple[str, int, int, float]]:
    """Return all values of a scope, to find a task whose values equal an eval set's."""
    own = (row for row in results.rows if (row.scope, row.name) == (scope, name))
    return frozenset((row.figure, row.iteration, row.n, row.value) for row in own)


def _block(results: RunResults, scope: Scope, name: str, without: Collection[str]) -> _FigureBlock:
    own = [row for row in results.rows if (row.scope, row.name) == (scope, name)]
    figures = [f for f in dict.fromkeys(row.figure for row in own) if f not in without]
    most = max(row.n for row in own)
    eval_set = "eval set " if scope == "eval_set" else ""
    called = f"{eval_set}{one_line(name, limit=NAME)}" if name else "all"
    return _FigureBlock(
        title=f"{called}, {most:,}",
        figures=tuple((f, {r.iteration: r for r in own if r.figure == f}) for f in figures),
    )


def _lines(results: RunResults) -> Iterator[_Line]:
    """Give a title and a line for each figure of each scope; families have one line each."""
    told, alone = results.told, len(results.models) == 1
    families = {row.scope for row in results.rows} == {"all", "family"}
    blocks = _blocks(results)
    if families:
        blocks.sort(key=lambda block: _lost(block, told))
    for number, block in enumerate(blocks):
        if not families:
            yield _Line(label=block.title, of={}, change="", title=True, first=not number)
        for figure, of in block.figures:
            label = block.title if families else f"  {figure_label(figure)}"
            change = (
                told_interval(of.get(told.iteration))
                if alone
                else told_change(of.get(told.iteration))
            )
            yield _Line(label=label, of=of, change=change)


def _lost(block: _FigureBlock, told: MeasuredModel) -> tuple[bool, float]:
    """Return the sort key of a block among families: all prompts first, then the largest loss."""
    rows = [of[told.iteration] for _, of in block.figures if told.iteration in of]
    changes = [row.change for row in rows if row.change is not None]
    return block.title.rpartition(",")[0] != "all", min(changes, default=0.0)


def _table(results: RunResults, width: int) -> tuple[Table, list[str]]:
    """Return a table with a line for each figure, and the headings that did not fit."""
    told = results.told
    alone = len(results.models) == 1
    lines = list(_lines(results))
    label = min(LABEL, max(len(line.label) for line in lines))
    values = [told_value(r.figure, r.value) for line in lines for r in line.of.values()]
    heads = [_heading(model) for model in results.models]
    cell = max(map(len, [*values, *(part for head in heads for part in head.split("\n"))]))
    change = max(len(line.change) for line in lines)
    room = (width - EDGES - label - change - 2 * GAP) // (cell + GAP)
    shown = _fitting(results.models, told, max(LEAST, room))
    table = _empty(_title(results))
    table.add_column("", width=label, overflow="fold")
    for model in shown:
        table.add_column(_heading(model), justify="right", no_wrap=True)
    since = f"M_{results.models[0].iteration}"
    heading = "95 %" if alone else f"M_{told.iteration} since {since}"
    has_change = EDGES + label + change + 2 * GAP + len(shown) * (cell + GAP) <= width
    if has_change:
        table.add_column(heading, justify="right", no_wrap=len(heading) <= change)
    for line in lines:
        if line.title:
            if not line.first:
                table.add_row()
            table.add_row(f"[bold]{escape(line.label)}[/bold]")
        else:
            cells = [told_of(line.of.get(model.iteration)) for model in shown]
            table.add_row(escape(line.label), *cells, *([line.change] if has_change else []))
    left_out = [f"M_{model.iteration}" for model in results.models if model not in shown]
    return table, left_out if has_change else [*left_out, heading]


def _fitting(
    models: Sequence[MeasuredModel], told: MeasuredModel, room: int
) -> list[MeasuredModel]:
    """Return the models that fit: the first, the reported one, then the latest."""
    kept = {models[0].iteration, told.iteration}
    for model in reversed(models):
        if len(kept) < room:
            kept.add(model.iteration)
    return [model for model in models if model.iteration in kept]


def _wide_tables(results: RunResults) -> Iterator[Table]:
    """Give a table for each scope, with a line for each model and each of its changes."""
    for block in _blocks(results):
        table = _empty(f"{_title(results)}: {one_line(block.title, limit=NAME)} prompts")
        table.add_column("Model", no_wrap=True)
        for figure, _ in block.figures:
            table.add_column(figure_label(figure), justify="right")
        for model in results.models:
            cells = [
                f"{told_of(of.get(model.iteration))} {told_change(of.get(model.iteration))}".strip()
                for _, of in block.figures
            ]
            name = ", ".join((f"M_{model.iteration}", *model.marks))
            table.add_row(name, *map(escape, cells))
        yield table


def _empty(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
    )


def _heading(model: MeasuredModel) -> str:
    return "\n".join((f"M_{model.iteration}", *model.marks))


PROBES = "Probes passed, % and 95 % interval (fell: an alarm, ± standard error)"


def print_probes(console: Console, evaluations: Sequence[Evaluation]) -> None:
    """Print the share of each probe passed, if there are any; falls with an alarm are marked."""
    probed = [e for e in evaluations if is_probe(e.benchmark)]
    if not probed:
        return
    by_name = {(e.iteration, e.benchmark, e.metric): e for e in probed}
    probes = sorted({e.benchmark for e in probed})
    rows = [
        (f"M_{number}", *(_probed(by_name, number, name) for name in probes))
        for number in sorted({e.iteration for e in probed})
    ]
    headings = ("Model", *(one_line(name.removeprefix(PREFIX), limit=NAME) for name in probes))
    console.print()
    print_columns(console, text_columns(headings, rows), title=PROBES)


def _probed(by_name: Mapping[tuple[int, str, str], Evaluation], number: int, probe: str) -> str:
    """Return the share of a probe that a model passed, and its fall if that is an alarm."""
    passed = by_name.get((number, probe, PASSED))
    if passed is None:
        return "-"
    within = share_interval(passed.value, passed.stderr, passed.n)
    interval = "" if within is None else " [{:.1f}, {:.1f}]".format(*(100 * end for end in within))
    lost = [by_name.get((number, probe, metric)) for metric in (FALL, FALL_OVERALL)]
    alarms = [e for e in lost if e is not None and alarming(e)]
    fell = f", fell {_percent(alarms[-1])}" if alarms else ""
    return f"{100 * passed.value:.1f}{interval}{fell}"


def _percent(evaluation: Evaluation) -> str:
    error = "" if evaluation.stderr is None else f" ±{100 * evaluation.stderr:.1f}"
    return f"{100 * evaluation.value:.1f}{error}"
