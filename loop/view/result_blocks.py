"""The results of a run's models for its page: a table for all prompts, and one a task."""

from dataclasses import dataclass
from typing import Literal

from ..lake.query.best_model import NOT_BETTER
from ..lake.query.model_figures import ModelFigure, RunResults
from ..lake.query.told_figures import figure_label, told_change, told_interval, told_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCell:
    """A figure of a model with its interval, and its change since the first with the interval.

    `way` is the direction of a significant change, if more of the figure is better.
    """

    value: str
    interval: str
    change: str
    way: Literal["up", "down", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultBlock:
    """The figures of one scope: a line each, with a cell for each model, None if not measured."""

    title: str
    prompts: int
    lines: tuple[tuple[str, tuple[ResultCell | None, ...]], ...]


def result_blocks(results: RunResults) -> list[ResultBlock]:
    """Return the tables of a run's results, all prompts first."""
    places = dict.fromkeys((row.scope, row.name) for row in results.rows)
    return [_block(results, scope, name) for scope, name in places]


def _block(results: RunResults, scope: str, name: str) -> ResultBlock:
    own = [row for row in results.rows if (row.scope, row.name) == (scope, name)]
    by_place = {(row.figure, row.iteration): row for row in own}
    return ResultBlock(
        title=name or "all prompts",
        prompts=max(row.n for row in own),
        lines=tuple(
            (
                figure_label(figure),
                tuple(_cell(by_place.get((figure, m.iteration))) for m in results.models),
            )
            for figure in dict.fromkeys(row.figure for row in own)
        ),
    )


def _cell(row: ModelFigure | None) -> ResultCell | None:
    if row is None:
        return None
    return ResultCell(
        value=told_of(row), interval=told_interval(row), change=told_change(row), way=_way(row)
    )


def _way(row: ModelFigure) -> Literal["up", "down", ""]:
    if row.change_low is None or row.change_high is None or row.figure in NOT_BETTER:
        return ""
    return "up" if row.change_low > 0 else "down" if row.change_high < 0 else ""
