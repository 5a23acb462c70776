"""The results of a run's models for its page: a table for all prompts, and one a task."""

from dataclasses import dataclass

from ..lake.query.figures import SHARES
from ..lake.query.model_figures import ModelFigure, RunResults


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCell:
    """A figure of a model with its interval, and its change since the first with the interval."""

    value: str
    interval: str
    change: str
    between: str
    way: str


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
    figures = dict.fromkeys(row.figure for row in own)
    by_place = {(row.figure, row.iteration): row for row in own}
    return ResultBlock(
        title=name or "all prompts",
        prompts=max(row.n for row in own),
        lines=tuple(
            (
                f"{figure} %" if figure in SHARES else figure,
                tuple(_cell(by_place.get((figure, m.iteration))) for m in results.models),
            )
            for figure in figures
        ),
    )


def _cell(row: ModelFigure | None) -> ResultCell | None:
    if row is None:
        return None
    first = row.change is None or row.iteration == row.against
    return ResultCell(
        value=_number(row, row.value),
        interval=_interval(row, row.low, row.high, ""),
        change="" if first else _number(row, row.change or 0.0, "+"),
        between="" if first else _interval(row, row.change_low, row.change_high, "+"),
        way="" if first else _way(row),
    )


def _way(row: ModelFigure) -> str:
    """Return where a figure went beyond chance, or nothing."""
    if row.change_low is not None and row.change_low > 0:
        return "up"
    return "down" if row.change_high is not None and row.change_high < 0 else ""


def _interval(row: ModelFigure, low: float | None, high: float | None, sign: str) -> str:
    if low is None or high is None:
        return ""
    return f"{_number(row, low, sign)} to {_number(row, high, sign)}"


def _number(row: ModelFigure, value: float, sign: str = "") -> str:
    factor, decimals = (100.0, 1) if row.figure in SHARES else (1.0, 2)
    return f"{factor * value:{sign}.{decimals}f}"
