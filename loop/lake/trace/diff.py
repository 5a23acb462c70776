"""The same held-out prompts under two checkpoints: which answers changed, and by how much."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Literal

import polars as pl

from ....configs.mistakes import did_you_mean, list_names
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import PolicyVerdict
from ...data.splits import DEV, HELD_OUT
from ..query.figures import deciding
from ..query.measured_change import measured_change
from ..query.policy_figures import APPROVAL, measured_on, metrics_of, value_rows
from ..query.run_verdicts import verdicts_of
from ..query.vocabulary import LENGTH
from .diff_page import Diff


class DiffError(ValueError):
    """Two measurements that cannot be compared."""

    code = "LPF-207"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRequest:
    """A request: two iterations (None: the first and the last that were measured) on a benchmark.

    `by` is the group over which prompts are summed up.
    """

    before: int | None = None
    after: int | None = None
    benchmark: str = HELD_OUT
    by: Literal["task", "family"] = "task"
    task: str | None = None
    metric: str | None = None
    answers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two measurements."""

    run: RunReader
    iteration: int

    def __str__(self) -> str:
        return f"iteration {self.iteration} of run {self.run.folder.name}"


def diff(run: RunReader, request: DiffRequest, other: RunReader | None = None) -> Diff:
    """Compare two iterations prompt by prompt; the second may be of another run.

    Raises:
        DiffError: if one of them was not measured, or they share no prompts.
    """
    before, after = _sides(run, other or run, request)
    paired = _pair_prompts(before, after, request)
    metrics = _listed_metrics(paired, request)
    changed = changes(paired, metrics)
    shown = metrics if request.by == "family" or request.metric is not None else None
    on_both: Mapping[tuple[str, str], PolicyVerdict] = {}
    if other in (None, run):
        on_both = _verdicts(after, before, request.benchmark)
    return Diff(
        before=str(before),
        after=str(after),
        benchmark=request.benchmark,
        summary=summary(paired, shown, request.by, on_both),
        changes=_with_answers(before, after, changed) if request.answers else changed,
    )


def _verdicts(after: Side, before: Side, benchmark: str) -> Mapping[tuple[str, str], PolicyVerdict]:
    """Return the run's own verdicts on the two models, by scope and name."""
    if benchmark not in (DEV, HELD_OUT):
        return {}
    return {
        (row.scope, row.name): row
        # M_0 may be the best, too; its verdict as the first is the one that other commands show.
        for row in reversed(verdicts_of(after.run, after.iteration, benchmark))
        if row.other_iteration == before.iteration
    }


def _listed_metrics(paired: pl.DataFrame, request: DiffRequest) -> list[str]:
    """Return the metrics whose changes are listed: the requested one, or the deciding ones."""
    if request.metric is not None:
        return [request.metric]
    measured = paired["metric"].unique().sort().to_list()
    figure = deciding(measured)
    if figure is None:
        return []
    return [APPROVAL.name] if figure == APPROVAL else metrics_of(figure, measured)


def _sides(run: RunReader, other: RunReader, request: DiffRequest) -> tuple[Side, Side]:
    """Return the two measurements: by default M_0's and the last, or the last of each run."""
    after = request.after
    if after is None:
        after = _measured_iterations(other, request.benchmark)[-1]
    before = request.before
    if before is None:
        earlier = [
            t for t in _measured_iterations(run, request.benchmark) if other is not run or t < after
        ]
        if not earlier:
            raise DiffError(
                f"run {run.folder.name} was not measured on {request.benchmark!r} before iteration "
                f"{after}: choose two with --from and --to"
            )
        before = earlier[0] if other is run else earlier[-1]
    return Side(run=run, iteration=before), Side(run=other, iteration=after)


def _measured_iterations(run: RunReader, benchmark: str) -> list[int]:
    """Return the iterations that were measured, in order."""
    rows = run.scan("evaluations").filter(measured_on(benchmark))
    found = rows.select("iteration").unique().sort("iteration").collect()["iteration"].to_list()
    if not found:
        raise DiffError(f"run {run.folder.name} was not measured on {benchmark!r}")
    return found


def _pair_prompts(before: Side, after: Side, request: DiffRequest) -> pl.DataFrame:
    """Return the prompts that both measured: task, metric, and the two values."""
    old, new = _values(before, request), _values(after, request)
    paired = old.join(new, on=("prompt_id", "metric"), suffix="_after", validate="1:1")
    kept = before.run.scan("prompts").select("prompt_id", "task", "family", "cluster")
    prompts = kept.unique("prompt_id", keep="first")
    rows = paired.lazy().join(prompts, on="prompt_id", how="left").collect()
    if request.task is not None:
        rows = rows.filter(pl.col("task") == request.task)
    if not rows.height:
        task = f" with task {request.task!r}" if request.task else ""
        raise DiffError(f"{before} and {after} share no prompts{task} on {request.benchmark!r}")
    if request.by == "family" and rows["family"].null_count() == rows.height:
        raise DiffError(
            f"the prompts of {before} are of no family: a file may name it in the field that "
            "prompts.fields.family says"
        )
    return rows.with_columns(pl.coalesce("cluster", "prompt_id"))


def _values(side: Side, request: DiffRequest) -> pl.DataFrame:
    """Return the prompt-level scores of one side, with whether the critic approves as a whole."""
    scores = side.run.scan("scores", iteration=side.iteration).filter(
        measured_on(request.benchmark)
    )
    columns = ("prompt_id", "metric", "value", "candidate_id")
    rows = scores.select(columns).collect()
    ratings = rows["metric"].unique().to_list()
    if metrics_of(APPROVAL, ratings):
        approved = value_rows(scores, APPROVAL, ratings).with_columns(metric=pl.col("figure"))
        rows = pl.concat([rows, approved.select(columns).collect()])
    if not rows.height:
        raise DiffError(f"{side} was not measured on {request.benchmark!r}")
    names = rows["metric"].unique().sort().to_list()
    if request.metric is not None and request.metric not in names:
        raise DiffError(
            f"no metric {request.metric!r} there; {did_you_mean(request.metric, names)}use one of "
            f"{list_names(names)}"
        )
    return rows


def _with_answers(before: Side, after: Side, changed: pl.DataFrame) -> pl.DataFrame:
    """Add the texts of the answers."""
    for side, name in ((before, "before"), (after, "after")):
        column = f"candidate_{name}"
        texts = (
            side.run.scan("candidates", iteration=side.iteration)
            .filter(pl.col("prompt_id").is_in(changed["prompt_id"].implode()))
            .select(pl.col("candidate_id").alias(column), pl.col("text").alias(f"answer_{name}"))
            .collect()
        )
        changed = changed.join(texts, on=column, how="left", maintain_order="left")
    return changed


def summary(
    paired: pl.DataFrame,
    metrics: Sequence[str] | None,
    by: Literal["task", "family"],
    verdicts: Mapping[tuple[str, str], PolicyVerdict],
) -> pl.DataFrame:
    """Return how prompts changed, by task or family and metric: all metrics, or only these.

    By family, the largest loss comes first. `verdicts` are the verdicts on the two models, by scope
    and name: a change has the verdict's bounds, or bounds at its level.
    """
    shown = paired if metrics is None else paired.filter(pl.col("metric").is_in(metrics))
    keys = ["task", "metric"] if by == "task" else ["task", "family", "metric"]
    ordered = shown.sort(*keys, "prompt_id").select(*keys, *VALUES)
    rows = [
        {
            **dict(zip(keys, group, strict=True)),
            **_change(
                str(group[-1]),
                [row[len(keys) :] for row in rows],
                verdicts.get((by, group[-2])),
            ),
        }
        for group, rows in groupby(ordered.iter_rows(), key=lambda row: row[: len(keys)])
    ]
    found = pl.DataFrame(rows, infer_schema_length=None)
    return found.sort("difference", *keys) if by == "family" else found


def _change(
    metric: str, rows: Sequence[tuple[float, float, str]], verdict: PolicyVerdict | None
) -> dict[str, Json]:
    """Return how the prompts of one group changed."""
    before, after, clusters = (list(column) for column in zip(*rows, strict=True))
    found = measured_change(metric, before, after, clusters, verdict)
    return {
        "n": found.n,
        "before": fmean(before),
        "after": fmean(after),
        "difference": found.value,
        "low": found.low,
        "high": found.high,
        "level": found.level,
        "better": found.better,
        "worse": found.worse,
    }


VALUES = ("value", "value_after", "cluster")


def changes(paired: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """Return the prompts whose value of a metric changed, the largest changes first, with ids."""
    lengths = paired.filter(pl.col("metric") == LENGTH).select(
        "prompt_id", length_before="value", length_after="value_after"
    )
    return (
        paired.filter(pl.col("metric").is_in(metrics) & (pl.col("value") != pl.col("value_after")))
        .join(lengths, on="prompt_id", how="left")
        .select(
            "task",
            "metric",
            "prompt_id",
            pl.col("value").alias("before"),
            pl.col("value_after").alias("after"),
            (pl.col("value_after") - pl.col("value")).alias("change"),
            "length_before",
            "length_after",
            pl.col("candidate_id").alias("candidate_before"),
            pl.col("candidate_id_after").alias("candidate_after"),
            "family",
        )
        .sort(
            pl.col("change").abs(), "task", "metric", "prompt_id", descending=[True] + [False] * 3
        )
    )
