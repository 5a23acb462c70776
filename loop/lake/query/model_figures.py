"""The figures of a run's models: each with its change against the policy that the run began with.

Both are compared on the prompts that both answered, as paired differences. The bounds of a change
are the verdict's if the loop decided by it, and else computed in the same way and at the same level
(`statistics.clustered_bounds`), so that a gain has the same interval everywhere.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ....stores.frames import frame_rows
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import PolicyVerdict, Scope
from ...data.splits import DEV, HELD_OUT, eval_set_of
from ..statistics.clustered_error import mean_error
from .figures import (
    NotMeasuredError,
    deciding_of,
    figure_interval,
    figure_values,
    place_of,
    shown_split,
)
from .measured_change import measured_change
from .policy_figures import measured_on
from .vocabulary import CONTROLLED
from .whole_figures import ALL, ModelFigure, whole_figures

Column = NDArray[np.float64]
_Of = tuple[str, int]
"""A figure, and the iteration of a model."""
_Verdicts = Mapping[tuple[int, Scope, str], PolicyVerdict]
"""The verdicts against the first policy, by iteration and scope of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """A model that was measured; `marks` can contain `best` and `latest`."""

    iteration: int
    checkpoint_id: str
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """The figures of a run's models on a split; `split` is None if nothing was measured."""

    run: str
    split: str | None
    models: tuple[MeasuredModel, ...]
    rows: tuple[ModelFigure, ...]

    @property
    def reported(self) -> MeasuredModel:
        """The model whose change is reported: the best, if the run has one, else the latest."""
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
    by: Sequence[Scope] = (ALL, "eval_set", "task"),
    figure: str | None = None,
    step: int | None = None,
) -> RunResults:
    """Return the figures of a run's models over each scope; all figures, or only `figure`.

    With a `step` they are those of the first policy, and of policies published at that step.

    Raises:
        NotMeasuredError: if nothing was measured on `split`, or `figure` was not, or if `by` has
            families and the prompts lack them.
    """
    shown = shown_split(run, split) if step is None else split
    if shown is None:
        return RunResults(run=run.folder.name, split=None, models=(), rows=())
    values = figure_values(run, shown, figure, step=step)
    if "family" in by and values["family"].null_count() == values.height:
        raise NotMeasuredError(
            f"the prompts of run {run.folder.name} are of no family: a file may name it in the "
            "field that prompts.fields.family says"
        )
    made = dict(values.select("iteration", "checkpoint_id").unique().sort("iteration").iter_rows())
    verdicts: _Verdicts = _verdicts(run, shown) if step is None else {}
    rows = [row for scope in by for row in _of_scope(values, shown, scope, made, verdicts)]
    rows = _beside_raw(rows, list(whole_figures(run, shown, made, figure, step=step)))
    marks = model_marks(run)
    models = [
        MeasuredModel(iteration=number, checkpoint_id=identity, marks=marks.get(number, ()))
        for number, identity in made.items()
    ]
    return RunResults(run=run.folder.name, split=shown, models=tuple(models), rows=tuple(rows))


def model_results(run: RunReader, iteration: int, step: int | None = None) -> RunResults:
    """Return the figures of M_t, or of the policy at a step of its training, and the first's.

    They are on held-out prompts, else on dev prompts; without rows if neither were measured.
    """
    scores = run.scan("scores", iteration=iteration).select("benchmark").unique()
    for split in (HELD_OUT, DEV):
        if scores.filter(measured_on(split, step)).collect().height:
            found = run_results(run, split=split, by=(ALL, "eval_set"), step=step)
            return found.only({0, iteration})
    return RunResults(run=run.folder.name, split=None, models=(), rows=())


def results_by(run: RunReader, group: Scope, split: str | None = None) -> RunResults:
    """Return a run's results in all and for each task; by family, the figure that compares models.

    Raises:
        NotMeasuredError: as `run_results`.
    """
    shown = shown_split(run, split)
    eval_sets: tuple[Scope, ...] = ("eval_set",) if group == "task" else ()
    figure = deciding_of(run, shown) if shown is not None and group == "family" else None
    return run_results(
        run,
        split=shown,
        by=(ALL, *eval_sets, group),
        figure=None if figure is None else figure.name,
    )


def model_marks(run: RunReader) -> dict[int, tuple[str, ...]]:
    """Return which models are the best and the latest; empty before a run has decided it."""
    last = run.scan("standings").sort("iteration").tail(1).collect().to_dicts()
    if not last:
        return {}
    best, latest = last[0]["best_iteration"], last[0]["iteration"]
    if best == latest:
        return {best: ("best", "latest")}
    return {best: ("best",), latest: ("latest",)}


def _verdicts(run: RunReader, split: str) -> _Verdicts:
    """Return the verdicts against the first policy, by iteration and scope of the results."""
    eval_set = eval_set_of(split)
    rows = run.scan("verdicts").filter(
        pl.col("against") == "initial", pl.col("split") == (split if eval_set is None else HELD_OUT)
    )
    found: dict[tuple[int, Scope, str], PolicyVerdict] = {
        (row.iteration, row.scope, row.name): row
        for row in frame_rows(PolicyVerdict, rows.collect())
    }
    if eval_set is None:
        return found
    own = {number for number, scope, name in found if (scope, name) == ("eval_set", eval_set)}
    return {(number, ALL, ""): found[number, "eval_set", eval_set] for number in own}


def _of_scope(
    values: pl.DataFrame, split: str, scope: Scope, made: Mapping[int, str], verdicts: _Verdicts
) -> Iterator[ModelFigure]:
    """Give the figures of all prompts, or of each task or family."""
    parts = {"": values}
    if scope != ALL:
        named = values.filter(pl.col(scope).is_not_null())
        parts = {str(key[0]): own for key, own in named.partition_by(scope, as_dict=True).items()}
    for name, own in sorted(parts.items()):
        columns, clusters = _columns(own)
        first = {f: min(i for g, i in columns if g == f) for f, _ in columns}
        for (figure, number), column in columns.items():
            there = ~np.isnan(column)
            seen, n = column[there], int(there.sum())
            error = mean_error(seen.tolist(), clusters[there].tolist())
            value = float(seen.mean())
            low, high = figure_interval(figure, value, error, n) or (None, None)
            verdict = verdicts.get((number, scope, name))
            yield ModelFigure(
                split=split,
                scope=scope,
                name=name,
                figure=figure,
                iteration=number,
                checkpoint_id=made[number],
                n=n,
                value=value,
                low=low,
                high=high,
                against=first[figure],
                **_change(columns, clusters, figure, first[figure], number, verdict),
            )


def _change(
    columns: Mapping[_Of, Column],
    clusters: NDArray[np.str_],
    figure: str,
    first: int,
    number: int,
    verdict: PolicyVerdict | None,
) -> dict[str, Any]:
    """Return the fields for a figure's change since the first model."""
    before, after = columns[figure, first], columns[figure, number]
    both = ~np.isnan(before) & ~np.isnan(after)
    if not both.any():
        return {}
    on_both = verdict if verdict is not None and verdict.other_iteration == first else None
    sides = (before[both].tolist(), after[both].tolist(), clusters[both].tolist())
    found = measured_change(figure, *sides, on_both)
    change = {
        "paired": found.n,
        "clusters": found.clusters,
        "change": found.value,
        "better": found.better,
        "worse": found.worse,
    }
    # The change of a policy against itself is 0: bounds would be meaningless.
    bounds = {"change_low": found.low, "change_high": found.high, "change_level": found.level}
    return change if number == first else change | bounds


def _columns(values: pl.DataFrame) -> tuple[dict[_Of, Column], NDArray[np.str_]]:
    """Return each figure of each model by prompt, NaN if it is missing, and the clusters."""
    of = values.select("figure", "iteration").unique().rows()
    of.sort(key=lambda pair: (place_of(pair[0]), pair[1]))
    wide = values.with_columns(of=pl.format("{} {}", "iteration", "figure")).pivot(
        on="of", index=["prompt_id", "cluster"], values="value"
    )
    columns = {
        (figure, number): wide[f"{number} {figure}"].cast(pl.Float64).to_numpy().astype(np.float64)
        for figure, number in of
    }
    return columns, np.array(wide["cluster"].to_list())


def _beside_raw(rows: list[ModelFigure], whole: list[ModelFigure]) -> list[ModelFigure]:
    """Insert each figure without values by prompt after the others of the same prompts.

    The win-rate at equal lengths follows the raw one.
    """
    for (scope, name, figure), group in groupby(whole, key=lambda r: (r.scope, r.name, r.figure)):
        own = [n for n, r in enumerate(rows) if (r.scope, r.name) == (scope, name)]
        raw = [n for n in own if rows[n].figure == "win_rate"] if figure == CONTROLLED else own
        place = raw[-1] + 1 if raw else 0
        rows = [*rows[:place], *group, *rows[place:]]
    return rows
