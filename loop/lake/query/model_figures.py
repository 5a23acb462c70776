"""The figures of a run's models: each with its change against the policy that the run began with.

Both are compared on the prompts that both answered, as paired differences. The bounds of a change
are the verdict's if the loop decided by it, and else computed in the same way and at the same level
(`statistics.clustered_bounds`), so that a gain has the same interval everywhere. Two figures have
no values by prompt: the win-rate at equal lengths is fitted to all comparisons at once, and the
totals of a form of scores are means of its categories' means.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from statistics import fmean
from typing import Any

import polars as pl

from ....stores.frames import frame_rows
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import PolicyVerdict, Scope
from ...data.splits import DEV, HELD_OUT, eval_set_of
from ..statistics.intervals import mean_error
from .figures import (
    NotMeasuredError,
    deciding_of,
    figure_interval,
    figure_values,
    place_of,
    shown_split,
)
from .measured_change import measured_change
from .policy_figures import first_and, measured_on
from .vocabulary import CONTROLLED, RATING

ALL: Scope = "all"
STEP_PREFIX = "^step-[0-9]+:"
BY_FORM = ":"
"""Stands in the names of figures that a form of scores has."""
_Verdicts = Mapping[tuple[int, Scope, str], PolicyVerdict]
"""The verdicts against the first policy, by iteration and scope of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigure:
    """A figure of M_t over `n` prompts: all, or the eval set, task or family called `name`.

    `low` and `high` are the 95 % interval of the value. `change` is against M_`against`, over
    `paired` prompts in `clusters` clusters, of which `better` have more of the figure and `worse`
    have less. Its bounds are the verdict's on M_t, if one exists for these prompts: each errs in at
    most a share `change_level` of comparisons. Bounds are None if clusters are too few, or values
    by prompt are missing.
    """

    split: str
    scope: Scope
    name: str
    figure: str
    iteration: int
    checkpoint_id: str
    n: int
    value: float
    low: float | None
    high: float | None
    against: int
    paired: int = 0
    clusters: int = 0
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    change_level: float | None = None
    better: int = 0
    worse: int = 0


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
    whole = _whole_figures(run, shown, made, figure, step=step)
    rows = [row for scope in by for row in _of_scope(values, shown, scope, made, verdicts)]
    rows += [row for row in whole if row.scope in by]
    rows.sort(key=lambda r: (by.index(r.scope), r.name, place_of(r.figure), r.iteration))
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
        figure=figure,
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
    rows: pl.DataFrame, split: str, scope: Scope, made: Mapping[int, str], verdicts: _Verdicts
) -> Iterator[ModelFigure]:
    """Give the figures of all prompts, or of each task or family."""
    group = pl.lit("") if scope == ALL else pl.col(scope)
    named = rows.with_columns(name=group).filter(pl.col("name").is_not_null())
    for (name, figure), own in named.partition_by("name", "figure", as_dict=True).items():
        models = own.partition_by("iteration", as_dict=True)
        against = min(number for (number,) in models)
        first = models[against,].select("prompt_id", before="value")
        for (number,), seen in models.items():
            values = seen["value"].to_list()
            value, error = fmean(values), mean_error(values, seen["cluster"].to_list())
            low, high = figure_interval(figure, value, error, seen.height) or (None, None)
            both = seen.join(first, on="prompt_id", maintain_order="left")
            verdict = verdicts.get((number, scope, name))
            if verdict is not None and verdict.other_iteration != against:
                verdict = None
            yield ModelFigure(
                split=split,
                scope=scope,
                name=name,
                figure=figure,
                iteration=number,
                checkpoint_id=made[number],
                n=seen.height,
                value=value,
                low=low,
                high=high,
                against=against,
                **_change(figure, both, verdict, is_first=number == against),
            )


def _change(
    figure: str, both: pl.DataFrame, verdict: PolicyVerdict | None, *, is_first: bool
) -> dict[str, Any]:
    """Return the fields for a figure's change since the first model, on the prompts of both."""
    if both.is_empty():
        return {}
    before, after, clusters = (both[name].to_list() for name in ("before", "value", "cluster"))
    found = measured_change(figure, before, after, clusters, verdict)
    change = {
        "paired": found.n,
        "clusters": found.clusters,
        "change": found.value,
        "better": found.better,
        "worse": found.worse,
    }
    # The change of a policy against itself is 0: bounds would be meaningless.
    bounds = {"change_low": found.low, "change_high": found.high, "change_level": found.level}
    return change if is_first else change | bounds


def _whole_figures(
    run: RunReader,
    split: str,
    made: Mapping[int, str],
    only: str | None = None,
    *,
    step: int | None = None,
) -> Iterator[ModelFigure]:
    """Give the figures without values by prompt: all, or `only` one."""
    own = pl.col("metric") == CONTROLLED
    of_form = pl.col("metric").str.contains(BY_FORM, literal=True)
    rated = pl.col("metric").str.starts_with(RATING)
    condition = own | (of_form & ~rated) if only is None else pl.col("metric") == only
    scored = run.scan("scores").filter(first_and(split, step)).select("metric").unique()
    numbers = (
        run.scan("evaluations")
        .filter(first_and(split, step), condition)
        .join(scored, on="metric", how="anti")
        .with_columns(pl.col("benchmark").str.replace(STEP_PREFIX, ""))
        .sort("benchmark", "metric", "iteration")
        .collect()
        .to_dicts()
    )
    for (benchmark, _), group in groupby(
        numbers, key=lambda row: (row["benchmark"], row["metric"])
    ):
        eval_set = eval_set_of(benchmark) if benchmark != split else None
        yield from _of_models(list(group), split, eval_set, made)


def _of_models(
    numbers: Sequence[dict[str, Any]], split: str, eval_set: str | None, made: Mapping[int, str]
) -> Iterator[ModelFigure]:
    """Give one figure of each model on a benchmark: a split, or a set of its prompts."""
    first = numbers[0]
    for number in numbers:
        value, error = number["value"], number["stderr"]
        within = figure_interval(number["metric"], value, error, number["n"])
        low, high = within or (None, None)
        yield ModelFigure(
            split=split,
            scope=ALL if eval_set is None else "eval_set",
            name=eval_set or "",
            figure=number["metric"],
            iteration=number["iteration"],
            checkpoint_id=made[number["iteration"]],
            n=number["n"],
            value=value,
            low=low,
            high=high,
            against=first["iteration"],
            change=value - first["value"],
        )
