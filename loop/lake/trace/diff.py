"""The same prompts under two checkpoints: which results changed, and by how much; and the page."""

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
from ...data.text import short_id
from ..query.figures import deciding
from ..query.format_figures import (
    figure_label,
    figure_name,
    format_bounds,
    format_difference,
    format_levels,
    format_value,
)
from ..query.measured_change import measured_change
from ..query.policy_figures import APPROVAL, measured_on, metrics_of, value_rows
from ..query.run_verdicts import verdicts_of
from ..query.vocabulary import COUNTS, LENGTH, RATING
from .page import Grid, Page, PageSection
from .terminal_page import page_text


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """`summary` has a row for each group and metric; `changes` one for each changed value."""

    before: str
    after: str
    benchmark: str
    summary: pl.DataFrame
    changes: pl.DataFrame

    @property
    def document(self) -> dict[str, object]:
        """The comparison as JSON data."""
        return {
            "before": self.before,
            "after": self.after,
            "benchmark": self.benchmark,
            "summary": self.summary.to_dicts(),
            "changes": self.changes.to_dicts(),
        }

    def __str__(self) -> str:
        return page_text(self.page())

    __repr__ = __str__

    def page(self, limit: int = 10) -> Page:
        """Return the page, with at most `limit` changes for the worse and for the better."""
        change = pl.col("change")
        return Page(
            title=f"{self.benchmark}: {self.before} → {self.after}",
            sections=(
                _summary_section(self.summary),
                _changes_section(self.changes.filter(change < 0), "down", limit),
                _changes_section(self.changes.filter(change > 0), "up", limit),
            ),
        )


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
    shown = paired
    if request.by == "family" or request.metric is not None:
        shown = paired.filter(pl.col("metric").is_in(metrics))
    verdicts: dict[tuple[str, str], PolicyVerdict] = {}
    if other in (None, run) and request.benchmark in (DEV, HELD_OUT):
        # M_0 may be the best, too; its verdict as the first is the one that other commands show.
        for row in reversed(verdicts_of(run, after.iteration, request.benchmark)):
            if row.other_iteration == before.iteration:
                verdicts[row.scope, row.name] = row
    return Diff(
        before=str(before),
        after=str(after),
        benchmark=request.benchmark,
        summary=_summary(shown, request.by, verdicts),
        changes=_changes(paired, metrics),
    )


def _listed_metrics(paired: pl.DataFrame, request: DiffRequest) -> list[str]:
    """Return the metrics whose changes are listed: the requested one, or the deciding ones."""
    if request.metric is not None:
        return [request.metric]
    measured = paired["metric"].unique().sort().to_list()
    figure = deciding(measured)
    if figure is None:
        return []
    return [APPROVAL] if figure == APPROVAL else metrics_of(figure, measured)


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


def _summary(
    paired: pl.DataFrame,
    by: Literal["task", "family"],
    verdicts: Mapping[tuple[str, str], PolicyVerdict],
) -> pl.DataFrame:
    """Return how prompts changed, by group and metric; by family, the largest loss comes first.

    A change that a verdict is about has its bounds, or bounds at its level.
    """
    keys = ["task", "metric"] if by == "task" else ["task", "family", "metric"]
    ordered = paired.sort(*keys, "prompt_id").select(*keys, "value", "value_after", "cluster")
    rows: list[dict[str, Json]] = []
    for group, members in groupby(ordered.iter_rows(), key=lambda row: row[: len(keys)]):
        sides = (row[len(keys) :] for row in members)
        before, after, clusters = (list(side) for side in zip(*sides, strict=True))
        found = measured_change(group[-1], before, after, clusters, verdicts.get((by, group[-2])))
        rows.append(
            {
                **dict(zip(keys, group, strict=True)),
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
        )
    summed = pl.DataFrame(rows, infer_schema_length=None)
    return summed.sort("difference", *keys) if by == "family" else summed


def _changes(paired: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """Return the prompts whose value of a metric changed, the largest changes first, with ids."""
    before, after = pl.col("value"), pl.col("value_after")
    lengths = paired.filter(pl.col("metric") == LENGTH).select(
        "prompt_id", length_before="value", length_after="value_after"
    )
    return (
        paired.filter(pl.col("metric").is_in(metrics) & (before != after))
        .join(lengths, on="prompt_id", how="left")
        .select(
            "task",
            "metric",
            "prompt_id",
            before=before,
            after=after,
            change=after - before,
            length_before="length_before",
            length_after="length_after",
            candidate_before="candidate_id",
            candidate_after="candidate_id_after",
            family="family",
        )
        .sort(
            pl.col("change").abs(), "task", "metric", "prompt_id", descending=[True] + [False] * 3
        )
    )


def _summary_section(summary: pl.DataFrame) -> PageSection:
    """Return the table of changes: of figures, or of their parts if figures are missing."""
    group = "family" if "family" in summary.columns else "task"
    columns = (group, "metric", "n", "before", "after", "change", "bounds", "up/down")
    parts = pl.col("metric").is_in(COUNTS) | pl.col("metric").str.starts_with(RATING)
    shown = summary.filter(~parts)
    left_out = sorted(set(summary["metric"]) - set(shown["metric"]))
    rows = [
        (
            row[group] or "",
            figure_label(row["metric"]),
            str(row["n"]),
            format_value(row["metric"], row["before"]),
            format_value(row["metric"], row["after"]),
            format_difference(row["metric"], row["difference"]),
            format_bounds(row["metric"], row["low"], row["high"]),
            f"{row['better']}/{row['worse']}",
        )
        for row in (shown if shown.height else summary).iter_rows(named=True)
    ]
    notes = [f"--metric or --json also shows {', '.join(left_out)}"] if shown.height else []
    levels = format_levels(summary.filter(pl.col("low").is_not_null())["level"])
    return PageSection(
        heading="",
        grid=Grid(columns=columns, rows=tuple(rows)),
        lines=(
            *(() if levels is None else (levels,)),
            *(notes if left_out and shown.height else ()),
        ),
    )


def _changes_section(changes: pl.DataFrame, way: str, limit: int) -> PageSection:
    """Return the section on changes for the worse (`down`) or the better (`up`)."""
    shown = changes.head(limit)
    families = shown["family"].null_count() < shown.height
    columns = ("family" if families else "task", "metric", "change", "tokens", "prompt")
    rows = [
        (
            row["family"] or row["task"] or "",
            figure_name(row["metric"]),
            f"{row['before']:g} → {row['after']:g}",
            ""
            if row["length_before"] is None or row["length_after"] is None
            else f"{row['length_before']:.0f} → {row['length_after']:.0f}",
            short_id(row["prompt_id"]),
        )
        for row in shown.iter_rows(named=True)
    ]
    return PageSection(
        heading=f"{changes.height} values went {way}; the largest change first",
        grid=Grid(columns=columns, rows=tuple(rows), names=len(columns)),
        lines=("`lpfloop show PROMPT` shows both answers and their critiques",) if rows else (),
    )
