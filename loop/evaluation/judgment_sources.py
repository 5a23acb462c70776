# pyright: basic
"""Sources of judgments: files of the published formats, and preferences of runs."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from ...stores.lake import RunReader, run_names
from ..data.file_row import UnusedFields
from ..data.files import InputError, RowError, placed_rows
from ..data.judged_candidates import last_votes
from ..data.row_notes import tell_unused
from ..lake.query.runs import open_run
from ..stages.compare import ANNOTATE, COMPARE
from .judgment_formats import Items, JudgmentFormat, JudgmentSource, format_of, read_row
from .judgments import JudgedOutput, Judgment, OutputPair

TASK = "task"
COIN = "coin"
"""The annotator of verdicts given by simulated noise."""


def judgments_of(
    sources: Sequence[str], lake: Path, people: tuple[str, ...], *, by: str | None = None
) -> Items:
    """Yield the judgments of files and of runs of the lake, in order.

    Args:
        sources: Paths of files, or names of runs.
        lake: Folder that holds the runs.
        people: The prefixes of people's names.
        by: The field that names the task type; a run's prompts have `task`.

    Raises:
        InputError: if a source is neither, or a row cannot be read.
    """
    runs = set(run_names(lake))
    for source in sources:
        if Path(source).is_file():
            yield from _of_file(Path(source), people, by)
        elif source in runs:
            with closing(open_run(lake, source)) as run:
                yield from _of_run(run, people, by)
        else:
            raise InputError(f"{source}: neither a file nor a run of {lake}")


def _of_file(path: Path, people: tuple[str, ...], by: str | None) -> Items:
    known: JudgmentFormat | None = None
    unused = UnusedFields()
    for number, (place, row) in enumerate(placed_rows(path)):
        try:
            known = known or format_of(row)
            source = JudgmentSource(path=path, number=number, people=people, by=by)
            yield from read_row(known, row, source)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        unused.add(row)
    tell_unused(path, unused)


def _of_run(run: RunReader, people: tuple[str, ...], by: str | None) -> Items:
    """Yield a run's preferences with their texts."""
    texts = run.scan("candidates").unique("candidate_id")
    asked = run.scan("prompts").select("prompt_id", "messages", "task").unique("prompt_id")
    votes = last_votes(run.scan("preferences"))
    frame = votes.join(asked, on="prompt_id", how="left", maintain_order="left")
    for side in ("first", "second"):
        named = texts.select(
            pl.col("candidate_id").alias(f"{side}_id"),
            pl.col("text").alias(f"{side}_text"),
            pl.col("model").alias(f"{side}_model"),
        )
        frame = frame.join(named, on=f"{side}_id", how="left", maintain_order="left")
    found = frame.collect()
    prices = _prices(run, found)
    for row in found.iter_rows(named=True):
        said = preference(row, people)
        said = replace(said, price=prices.get(said.annotator))
        yield replace(said, pair=replace(said.pair, task=row[TASK])) if by == TASK else said


def _prices(run: RunReader, votes: pl.DataFrame) -> dict[str, float]:
    """Return the mean price of a verdict by each annotator that a run paid.

    The last part of the name of an annotator's stage is the annotator's name.
    """
    paid = dict[str, float]()
    for stage in run.journal.stages():
        verb, annotator = stage.stage.split(":")[0], stage.stage.split(":")[-1]
        if verb in (ANNOTATE.name, COMPARE.name):
            paid[annotator] = paid.get(annotator, 0.0) + stage.totals.get("money", 0.0)
    alike = (pl.col("text") == "") & (pl.col("preferred") == "tie")
    asked = votes.filter(~pl.col("flipped") & ~alike.fill_null(value=False))
    counts = dict(asked.group_by("annotator").len().iter_rows())
    return {name: paid[name] / count for name, count in counts.items() if paid.get(name)}


def preference(row: Mapping[str, Any], people: tuple[str, ...]) -> Judgment:
    """Return the judgment of a stored preference, with its messages and texts."""
    annotator = COIN if row["flipped"] else row["annotator"]
    human = annotator.startswith(people)
    known = not (human or row["flipped"] or row["order"] == "both")
    first, second = (
        JudgedOutput(
            key=row[f"{side}_text"] or row[f"{side}_id"],
            text=row[f"{side}_text"],
            model=row.get(f"{side}_model"),
        )
        for side in ("first", "second")
    )
    return Judgment(
        pair=OutputPair(
            instruction=_instruction(row["messages"], row["prompt_id"]), first=first, second=second
        ),
        annotator=annotator,
        human=human,
        preferred=row["preferred"],
        shown=row["order"] if known else None,
    )


def _instruction(messages: Sequence[Mapping[str, str]] | None, prompt_id: str) -> str:
    """Return the text of a one-message prompt, by which files identify it, too."""
    if not messages:
        return prompt_id
    if len(messages) == 1:
        return messages[0]["content"]
    return json.dumps([[m["role"], m["content"]] for m in messages], ensure_ascii=False)
