"""A checkpoint: its parents, its training data, and its numbers next to its parent's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ....stores.frames import frame_rows
from ....stores.lake import RunReader
from ....stores.records import Checkpoint, Evaluation
from ...data.training_rows import in_use
from ..query.model_names import checkpoints, step_policies
from .find_row import Found
from .page import Box, Grid, Page, PageSection, plain_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOn:
    """How many rows of one kind a checkpoint was trained on.

    `kind` is the kind of the chosen or shown candidates: samples, refinements.
    """

    table: str
    rule: str
    task: str
    kind: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStory:
    """A checkpoint with its training data, its evaluations and its parent's."""

    run: str
    asked: Found
    checkpoint: Checkpoint
    trained_on: list[TrainedOn]
    before: list[Evaluation]
    after: list[Evaluation]


def checkpoint_story(run: RunReader, asked: Found) -> CheckpointStory:
    """Return the story of a checkpoint."""
    made = [*checkpoints(run), *step_policies(run)]
    checkpoint = next(c for c in made if c.checkpoint_id == asked.id)
    numbers = read_evaluations(run)
    return CheckpointStory(
        run=run.folder.name,
        asked=asked,
        checkpoint=checkpoint,
        trained_on=trained_on(run, checkpoint),
        before=[e for e in numbers if e.checkpoint_id == checkpoint.parent_id],
        after=[e for e in numbers if e.checkpoint_id == checkpoint.checkpoint_id],
    )


def read_evaluations(run: RunReader) -> list[Evaluation]:
    """Return the run's evaluations on all benchmarks."""
    return frame_rows(Evaluation, run.scan("evaluations").collect())


def trained_on(run: RunReader, checkpoint: Checkpoint) -> list[TrainedOn]:
    """Count the rows of its iteration that a checkpoint was trained on; empty for M_0."""
    if checkpoint.parent_id is None:
        return []
    sources = (
        ("pairs", "chosen_id"),
        ("demonstrations", "candidate_id"),
        ("unpaired_answers", "candidate_id"),
    )
    return [
        TrainedOn(table=table, rule=rule, task=task, kind=kind, rows=rows)
        for table, shown in sources
        for rule, task, kind, rows in _counts(run, table, shown, checkpoint.iteration).iter_rows()
    ]


def _counts(run: RunReader, table: str, shown: str, iteration: int) -> pl.DataFrame:
    tasks = run.scan("prompts").select("prompt_id", "task").unique("prompt_id")
    kinds = run.scan("candidates", iteration=iteration).select(
        pl.col("candidate_id").alias(shown), "kind"
    )
    made = run.scan(table, iteration=iteration)
    rows = in_use(made).select("prompt_id", shown, "rule")
    groups = ("rule", "task", "kind")
    return (
        rows.join(tasks, on="prompt_id", how="left")
        .join(kinds, on=shown, how="left")
        .group_by(pl.col(groups).fill_null("unknown"))
        .len()
        .sort(groups)
        .collect()
    )


def checkpoint_page(story: CheckpointStory) -> Page:
    """Return the page of a checkpoint."""
    checkpoint = story.checkpoint
    facts = [
        f"recipe {checkpoint.recipe}, {checkpoint.steps} steps",
        f"parent {checkpoint.parent_id or 'none'}",
        f"reference policy {checkpoint.reference_id or 'none'}",
        f"path {checkpoint.path}",
        f"metrics {_metrics(json.loads(checkpoint.metrics)) or 'none'}",
    ]
    box = Box(title=f"checkpoint {checkpoint.checkpoint_id}", text=plain_text("\n".join(facts)))
    return Page(
        title=f"{checkpoint.name}, run {story.run}",
        sections=(
            PageSection(heading="", boxes=(box,)),
            PageSection(heading="trained on", lines=tuple(_trained_on(story))),
            PageSection(heading="evaluations", grid=_evaluations(story)),
        ),
    )


def _metrics(metrics: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _trained_on(story: CheckpointStory) -> list[str]:
    return [
        f"{row.rows} {row.table} by {row.rule}: task {row.task}, {row.kind}"
        for row in story.trained_on
    ] or ["nothing that this run has stored"]


def _evaluations(story: CheckpointStory) -> Grid:
    before = {(e.benchmark, e.metric): e.value for e in story.before}
    return Grid(
        columns=("benchmark", "metric", "n", "before", "after", "stderr", "change"),
        rows=tuple(_evaluation(e, before.get((e.benchmark, e.metric))) for e in story.after),
    )


def _evaluation(after: Evaluation, before: float | None) -> tuple[str, ...]:
    return (
        after.benchmark,
        after.metric,
        str(after.n),
        "" if before is None else f"{before:.3f}",
        f"{after.value:.3f}",
        "" if after.stderr is None else f"{after.stderr:.3f}",
        "" if before is None else f"{after.value - before:+.3f}",
    )
