"""The results of a run's models as one table of texts, and its renderers.

Each line is a figure, each column a model. `RunResults.document` is the same as JSON, the template
`results.html` the same for pages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console

from ...stores.records import Scope
from ..data.splits import HELD_OUT
from ..data.text import one_line, print_wrapped
from ..lake.query.format_figures import (
    figure_label,
    format_change,
    format_figure,
    format_interval,
    format_levels,
    split_name,
)
from ..lake.query.model_figures import ModelFigure, RunResults
from ..lake.query.policy_figures import WIN_RATE
from ..lake.query.row_table import print_figures
from ..lake.query.vocabulary import NOT_BETTER

NO_WIN_RATE = (
    "no win-rate was measured: a critic rates one answer at a time, so name who compares two "
    "(annotation.strong.model) and set assessment.reference=initial"
)
NAME = 60
"""The most characters of a group's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCell:
    """A figure of a model with its interval, and its change since the first with the interval.

    `way` is the direction of a significant change, if more of the figure is better.
    """

    value: str = "-"
    interval: str = ""
    change: str = ""
    way: Literal["up", "down", ""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultBlock:
    """The figures of one scope of prompts: a line each, with a cell for each model."""

    title: str
    lines: tuple[tuple[str, tuple[ResultCell, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """The results of a run's models; `reported` is the column of the model that is reported.

    `note` says how sure the bounds of changes are. With `families`, each block is a single line.
    """

    caption: str
    models: tuple[str, ...]
    reported: int
    change: str
    blocks: tuple[ResultBlock, ...]
    families: bool
    note: str | None

    def lines(self) -> Iterator[tuple[str, tuple[ResultCell, ...]]]:
        """Give the lines of a flat table: a title without cells before each block's lines."""
        for block in self.blocks:
            if self.families:
                yield block.title, block.lines[0][1]
            else:
                yield block.title, ()
                yield from block.lines

    def change_of(self, cells: Sequence[ResultCell]) -> str:
        """Return the reported model's change; for a run with one model, its interval."""
        own = cells[self.reported]
        return own.interval if len(self.models) == 1 else own.change


def result_table(results: RunResults) -> ResultTable:
    """Return the results of a run as a table of texts."""
    reported, first = results.reported, results.models[0].iteration
    figures = {row.figure for row in results.rows}
    what = f", {figure_label(figures.pop())}" if len(figures) == 1 else ""
    families = {row.scope for row in results.rows} == {"all", "family"}
    places = _places(results)
    if families:
        places.sort(key=lambda place: _lost(results, place))
    own = [row for row in results.rows if row.iteration == reported.iteration]
    levels = format_levels(row.change_level for row in own if row.change_low is not None)
    return ResultTable(
        caption=f"Results on {split_name(results.split or HELD_OUT)}{what}",
        models=tuple("\n".join((f"M_{m.iteration}", *m.marks)) for m in results.models),
        reported=results.models.index(reported),
        change="95 %" if len(results.models) == 1 else f"M_{reported.iteration} since M_{first}",
        blocks=tuple(_block(results, *place) for place in places),
        families=families,
        note=None if levels is None else f"intervals of changes: {levels}",
    )


def _places(results: RunResults) -> list[tuple[Scope, str]]:
    """Return the scopes to show: a single task is all prompts."""
    places: dict[tuple[Scope, str], None] = {(r.scope, r.name): None for r in results.rows}
    tasks = [place for place in places if place[0] == "task"]
    is_single = len(tasks) == 1 and ("all", "") in places
    return [place for place in places if not is_single or place not in tasks]


def _of(results: RunResults, scope: Scope, name: str) -> list[ModelFigure]:
    return [row for row in results.rows if (row.scope, row.name) == (scope, name)]


def _lost(results: RunResults, place: tuple[Scope, str]) -> tuple[bool, float]:
    """Return the sort key of families: all prompts first, then the largest loss."""
    own = (r for r in _of(results, *place) if r.iteration == results.reported.iteration)
    return place[0] != "all", min((row.change or 0.0 for row in own), default=0.0)


def _block(results: RunResults, scope: Scope, name: str) -> ResultBlock:
    own = _of(results, scope, name)
    figures = dict.fromkeys(row.figure for row in own)
    cells = {(row.figure, row.iteration): _cell(row) for row in own}
    called = f"{'eval set ' if scope == 'eval_set' else ''}{one_line(name, limit=NAME)}"
    return ResultBlock(
        title=f"{called if name else 'all'}, {max(row.n for row in own):,}",
        lines=tuple(
            (
                figure_label(figure),
                tuple(cells.get((figure, m.iteration), ResultCell()) for m in results.models),
            )
            for figure in figures
        ),
    )


def _cell(row: ModelFigure) -> ResultCell:
    low, high = row.change_low, row.change_high
    sure = low is not None and high is not None and row.figure not in NOT_BETTER
    up, down = sure and (low or 0.0) > 0, sure and (high or 0.0) < 0
    return ResultCell(
        value=format_figure(row),
        interval=format_interval(row),
        change=format_change(row),
        way="up" if up else "down" if down else "",
    )


def flat_table(table: ResultTable) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of texts of a table, with the reported model's change."""
    heads = ["", *(model.replace("\n", ", ") for model in table.models), table.change]
    empty = [""] * (len(heads) - 1)
    return heads, [
        [label, *([*(cell.value for cell in cells), table.change_of(cells)] if cells else empty)]
        for label, cells in table.lines()
    ]


def print_results(console: Console, results: RunResults, *, wide: bool = False) -> None:
    """Print the figures of a run's models: the first, the reported one, and the latest.

    With `wide` all models are shown, with their changes.
    """
    if not results.rows:
        return
    table = result_table(results)
    lines, models = list(table.lines()), range(len(table.models))
    shown = models if wide else sorted({0, table.reported, models[-1]})
    labels = [text if table.families or not cells else f"  {text}" for text, cells in lines]
    figures = [
        (
            table.models[place],
            [_text(cells[place], wide=wide) if cells else "" for _, cells in lines],
        )
        for place in shown
    ]
    if not wide:
        changes = [table.change_of(cells) if cells else "" for _, cells in lines]
        figures.append((table.change, changes))
    print_wrapped(console, table.caption)
    print_figures(console, [("", labels)], figures)
    left_out = ", ".join(f"M_{results.models[n].iteration}" for n in models if n not in shown)
    if left_out:
        print_wrapped(console, f"--wide also shows {left_out}")
    if table.note is not None:
        print_wrapped(console, table.note)
    if wide and all(row.figure != WIN_RATE for row in results.rows):
        print_wrapped(console, NO_WIN_RATE)


def _text(cell: ResultCell, *, wide: bool) -> str:
    return f"{cell.value} {cell.change}".rstrip() if wide else cell.value
