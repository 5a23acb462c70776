"""The figures of a run's models: each with its change against the policy that the run began with.

The two are compared on the prompts that both answered, each with itself; intervals are of level
95 %, by a bootstrap that draws whole clusters of prompts.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import Scope
from ..statistics.bootstrap import Estimate, Ratio, estimates, numbered
from ..statistics.paired import DRAWS, SEED
from ..statistics.share_interval import same_change_interval
from .figures import (
    CONTROLLED,
    SHARES,
    NotMeasuredError,
    deciding_of,
    figure_values,
    place_of,
    shown_split,
)
from .whole_figures import ALL, ModelFigure, whole_figures

Column = NDArray[np.float64]
_Of = tuple[str, int]
"""A figure, and the iteration of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """A model that was measured; `marks` say whether it is the best, and the latest."""

    iteration: int
    checkpoint_id: str
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """What was measured of a run's models on a split of its prompts; `split` None: nothing."""

    run: str
    split: str | None
    models: tuple[MeasuredModel, ...]
    rows: tuple[ModelFigure, ...]

    @property
    def told(self) -> MeasuredModel:
        """The model whose change is told: the best, if the run has decided it, else the latest."""
        best = [model for model in self.models[1:] if "best" in model.marks]
        return best[0] if best else self.models[-1]

    @property
    def document(self) -> dict[str, Json]:
        """The results as JSON data."""
        models: list[Json] = [
            {
                "iteration": model.iteration,
                "checkpoint": model.checkpoint_id,
                "marks": list[Json](model.marks),
            }
            for model in self.models
        ]
        rows = [asdict(row) for row in self.rows]
        return {"split": self.split, "models": models, "rows": list[Json](rows)}

    @property
    def frame(self) -> pl.DataFrame:
        """The results as rows."""
        return pl.DataFrame([asdict(row) for row in self.rows], infer_schema_length=None)

    def only(self, iterations: Collection[int]) -> "RunResults":
        """Return the results of these models alone."""
        return replace(
            self,
            models=tuple(m for m in self.models if m.iteration in iterations),
            rows=tuple(row for row in self.rows if row.iteration in iterations),
        )

    def figure(self, figure: str, scope: Scope = ALL, name: str = "") -> dict[int, ModelFigure]:
        """Return one figure of each model that has it, by iteration."""
        return {
            row.iteration: row
            for row in self.rows
            if (row.figure, row.scope, row.name) == (figure, scope, name)
        }


def run_results(
    run: RunReader,
    *,
    split: str | None = None,
    by: Sequence[Scope] = (ALL, "exam", "task"),
    figure: str | None = None,
) -> RunResults:
    """Return the figures of a run's models over each scope; all figures, or only `figure`.

    Raises:
        NotMeasuredError: if nothing was measured on the split that is asked for, or not `figure`,
            or if the prompts are of no family and are to be told by it.
    """
    shown = shown_split(run, split)
    if shown is None:
        return RunResults(run=run.folder.name, split=None, models=(), rows=())
    values = figure_values(run, shown, figure)
    if "family" in by and values["family"].null_count() == values.height:
        raise NotMeasuredError(
            f"the prompts of run {run.folder.name} are of no family: a file may name it in the "
            "field that prompts.fields.family says"
        )
    made = dict(values.select("iteration", "checkpoint_id").unique().sort("iteration").iter_rows())
    rows = [row for scope in by for row in _of_scope(values, shown, scope, made)]
    rows = _beside_raw(rows, list(whole_figures(run, shown, made, figure)))
    marks = model_marks(run)
    models = [
        MeasuredModel(iteration=number, checkpoint_id=identity, marks=marks.get(number, ()))
        for number, identity in made.items()
    ]
    return RunResults(run=run.folder.name, split=shown, models=tuple(models), rows=tuple(rows))


def results_by(run: RunReader, group: Scope, split: str | None = None) -> RunResults:
    """Return a run's results in all and for each task; by family, the figure that compares models.

    Raises:
        NotMeasuredError: as `run_results`.
    """
    shown = shown_split(run, split)
    exams: tuple[Scope, ...] = ("exam",) if group == "task" else ()
    figure = deciding_of(run, shown) if shown is not None and group == "family" else None
    return run_results(
        run, split=shown, by=(ALL, *exams, group), figure=None if figure is None else figure.name
    )


def model_marks(run: RunReader) -> dict[int, tuple[str, ...]]:
    """Return which models are the best and the latest; nothing before a run has decided it."""
    last = run.scan("standings").sort("iteration").tail(1).collect().to_dicts()
    if not last:
        return {}
    best, latest = last[0]["best_iteration"], last[0]["iteration"]
    if best == latest:
        return {best: ("best", "latest")}
    return {best: ("best",), latest: ("latest",)}


def _of_scope(
    values: pl.DataFrame, split: str, scope: Scope, made: Mapping[int, str]
) -> Iterator[ModelFigure]:
    """Give the figures of all prompts, or of each task or family."""
    if scope == ALL:
        yield from _figures(values, split, scope, "", made)
        return
    named = values.filter(pl.col(scope).is_not_null())
    for name, own in sorted(named.partition_by(scope, as_dict=True).items()):
        yield from _figures(own, split, scope, str(name[0]), made)


def _figures(
    values: pl.DataFrame, split: str, scope: Scope, name: str, made: Mapping[int, str]
) -> Iterator[ModelFigure]:
    """Give each figure of each model over these prompts, all from the same resamples."""
    columns, clusters = _columns(values)
    figures = dict.fromkeys(figure for figure, _ in columns)
    first = {f: min(i for other, i in columns if other == f) for f in figures}
    changes = {
        (figure, number): column - columns[figure, first[figure]]
        for (figure, number), column in columns.items()
    }
    ratios = [
        *(_ratio(column, is_share=figure in SHARES) for (figure, _), column in columns.items()),
        *(_ratio(column, is_share=False) for column in changes.values()),
    ]
    found = estimates(ratios, numbered(clusters), draws=DRAWS, seed=SEED)
    told = zip(columns, found[: len(columns)], found[len(columns) :], strict=True)
    for (figure, number), own, change in told:
        if own is not None:
            # A policy has not changed against itself, and how sure that is would say nothing.
            spread = None if number == first[figure] else _change_interval(figure, change)
            yield ModelFigure(
                split=split,
                scope=scope,
                name=name,
                figure=figure,
                iteration=number,
                checkpoint_id=made[number],
                n=own.n,
                value=own.value,
                low=own.low,
                high=own.high,
                against=first[figure],
                paired=change.n if change else 0,
                clusters=change.instructions if change else 0,
                change=change and change.value,
                change_low=spread and spread[0],
                change_high=spread and spread[1],
                better=int((changes[figure, number] > 0).sum()),
                worse=int((changes[figure, number] < 0).sum()),
            )


def _columns(values: pl.DataFrame) -> tuple[dict[_Of, Column], list[str]]:
    """Return each figure of each model by prompt, NaN where there is none, and the clusters."""
    of = values.select("figure", "iteration").unique().rows()
    of.sort(key=lambda pair: (place_of(pair[0]), pair[1]))
    wide = values.with_columns(of=pl.format("{} {}", "iteration", "figure")).pivot(
        on="of", index=["prompt_id", "cluster"], values="value"
    )
    columns = {
        (figure, number): wide[f"{number} {figure}"].cast(pl.Float64).to_numpy().astype(np.float64)
        for figure, number in of
    }
    return columns, wide["cluster"].to_list()


def _ratio(column: Column, *, is_share: bool) -> Ratio:
    there = ~np.isnan(column)
    numerator = np.where(there, column, 0.0)
    return Ratio(numerator=numerator, denominator=there.astype(float), is_share=is_share)


def _change_interval(figure: str, change: Estimate | None) -> tuple[float, float] | None:
    """Return the interval of a change; a share's is not empty where all changed alike."""
    if change is None or change.low is None or change.high is None:
        return None
    if figure in SHARES and change.low == change.high:
        return same_change_interval(change.low, change.instructions)
    return change.low, change.high


def _beside_raw(rows: list[ModelFigure], whole: list[ModelFigure]) -> list[ModelFigure]:
    """Put each figure without values by prompt behind the others of the same prompts.

    The win-rate at equal lengths stands behind the raw one.
    """
    for (scope, name, figure), group in groupby(whole, key=lambda r: (r.scope, r.name, r.figure)):
        own = [n for n, r in enumerate(rows) if (r.scope, r.name) == (scope, name)]
        raw = [n for n in own if rows[n].figure == "win_rate"] if figure == CONTROLLED else own
        place = raw[-1] + 1 if raw else 0
        rows = [*rows[:place], *group, *rows[place:]]
    return rows
