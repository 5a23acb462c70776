"""The same held-out prompts under two checkpoints: which answers changed, and by how much."""

from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from ....stores.lake import RunReader
from ...data.splits import HELD_OUT
from ..query.runs import open_run
from ..statistics.paired import change
from .diff_page import Diff

COUNTED = ("mean_length", "facts_right", "facts_wrong")
"""Metrics of which more is not better, such as counts."""
ABOUT_THE_CRITIC = ("critic_agreement", "rating:")
"""Metrics by the feedback model; flips are decided by the verifier's."""


class DiffError(ValueError):
    """Two measurements that cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRequest:
    """A request: two iterations (None: the last two that were measured) on a benchmark."""

    before: int | None = None
    after: int | None = None
    benchmark: str = HELD_OUT
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


def diff(run: RunReader, wanted: DiffRequest, other: RunReader | None = None) -> Diff:
    """Compare two iterations prompt by prompt; the second may be of another run.

    Raises:
        DiffError: if one of them was not measured, or they share no prompts.
    """
    before, after = _sides(run, other or run, wanted)
    paired = _paired(before, after, wanted)
    changed = changes(paired, wanted.metric)
    return Diff(
        before=str(before),
        after=str(after),
        benchmark=wanted.benchmark,
        summary=summary(paired, wanted.metric),
        changes=_with_answers(before, after, changed) if wanted.answers else changed,
    )


def diff_of(lake: Path, name: str, to_run: str | None, wanted: DiffRequest) -> Diff:
    """Compare two iterations of a run, or one of it with one of another run."""
    with closing(open_run(lake, name)) as run:
        if to_run is None:
            return diff(run, wanted)
        with closing(open_run(lake, to_run)) as other:
            return diff(run, wanted, other)


def _sides(run: RunReader, other: RunReader, wanted: DiffRequest) -> tuple[Side, Side]:
    """Return the two measurements; by default the last two of one run, or the last of each."""
    after = wanted.after
    if after is None:
        after = _measured(other, wanted.benchmark)[-1]
    before = wanted.before
    if before is None:
        earlier = [t for t in _measured(run, wanted.benchmark) if other is not run or t < after]
        if not earlier:
            raise DiffError(
                f"run {run.folder.name} has nothing measured on {wanted.benchmark!r} before "
                f"iteration {after}: choose two with --from and --to"
            )
        before = earlier[-1]
    return Side(run=run, iteration=before), Side(run=other, iteration=after)


def _measured(run: RunReader, benchmark: str) -> list[int]:
    """Return the iterations that were measured, in order."""
    rows = run.scan("evaluations").filter(pl.col("benchmark") == benchmark)
    found = rows.select("iteration").unique().sort("iteration").collect()["iteration"].to_list()
    if not found:
        raise DiffError(f"run {run.folder.name} has nothing measured on {benchmark!r}")
    return found


def _paired(before: Side, after: Side, wanted: DiffRequest) -> pl.DataFrame:
    """Return the prompts that both measured: task, metric, and the two values."""
    old, new = _values(before, wanted), _values(after, wanted)
    paired = old.join(new, on=("prompt_id", "metric"), suffix="_after", validate="1:1")
    tasks = before.run.scan("prompts").select("prompt_id", "task").unique("prompt_id")
    rows = paired.lazy().join(tasks, on="prompt_id", how="left").collect()
    if wanted.task is not None:
        rows = rows.filter(pl.col("task") == wanted.task)
    if not rows.height:
        task = f" with task {wanted.task!r}" if wanted.task else ""
        raise DiffError(f"{before} and {after} share no prompts{task} on {wanted.benchmark!r}")
    return rows


def _values(side: Side, wanted: DiffRequest) -> pl.DataFrame:
    """Return the prompt-level scores of one side."""
    rows = (
        side.run.scan("scores", iteration=side.iteration)
        .filter(pl.col("benchmark") == wanted.benchmark)
        .select("prompt_id", "metric", "value", "candidate_id")
        .collect()
    )
    if not rows.height:
        raise DiffError(f"{side} was not measured on {wanted.benchmark!r}")
    names = rows["metric"].unique().sort().to_list()
    if wanted.metric is not None and wanted.metric not in names:
        raise DiffError(
            f"there is no metric {wanted.metric!r} there; use one of {', '.join(names)}"
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


def summary(paired: pl.DataFrame, metric: str | None) -> pl.DataFrame:
    """Return how prompts changed, for each task and metric."""
    shown = paired if metric is None else paired.filter(pl.col("metric") == metric)
    ordered = shown.sort("task", "metric", "prompt_id").select("task", "metric", *VALUES)
    rows = [
        {
            "task": task,
            "metric": metric,
            **asdict(change(*zip(*(r[2:] for r in group), strict=True))),
        }
        for (task, metric), group in groupby(ordered.iter_rows(), key=lambda row: row[:2])
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


VALUES = ("value", "value_after")


def changes(paired: pl.DataFrame, metric: str | None) -> pl.DataFrame:
    """Return the prompts whose value changed, the largest changes first, ids included.

    Without `metric`, only metrics that the verifier decides and of which more is better.
    """
    lengths = paired.filter(pl.col("metric") == "mean_length").select(
        "prompt_id", length_before="value", length_after="value_after"
    )
    shown = pl.col("metric") == metric if metric is not None else _verified()
    return (
        paired.filter(shown & (pl.col("value") != pl.col("value_after")))
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
        )
        .sort(
            pl.col("change").abs(), "task", "metric", "prompt_id", descending=[True] + [False] * 3
        )
    )


def _verified() -> pl.Expr:
    by_critic = pl.any_horizontal(pl.col("metric").str.starts_with(m) for m in ABOUT_THE_CRITIC)
    return ~(pl.col("metric").is_in(COUNTED) | by_critic)
