"""Reading a run: status, rows with filters, and one prompt with everything that was made of it.

Read-only and safe while the daemon writes. Rows come back as plain dictionaries with the columns of
their Arrow schema, because they go straight to JSON or to a table.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ..stores.keys import Json
from ..stores.lake import RunReader, run_folder, run_names
from ..stores.records import SCORED, Evaluation
from .evaluation import HELD_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows of a table are wanted; None is all."""

    iteration: int | None = None
    task: str | None = None
    aspect: str | None = None
    rating: int | None = None
    unscored: bool = False
    limit: int | None = None


class NoSuchRunError(ValueError):
    """A run that is not in the lake, or a checkpoint that is not in the run."""


class NoSuchPromptError(ValueError):
    """A prompt that is in no run, or of whose id too little was said."""


def open_run(lake: Path, name: str | None) -> RunReader:
    """Open a run for reading; without a name, the one written last.

    Raises:
        NoSuchRunError: if it is not there, naming those that are.
    """
    names = run_names(lake)
    if name is None:
        if not names:
            raise NoSuchRunError(f"there is no run in {lake}: start one with `lpfloop run`")
        name = names[-1]
    if name not in names:
        known = ", ".join(names) or "none"
        raise NoSuchRunError(f"there is no run {name!r} in {lake}; runs there: {known}")
    return RunReader(run_folder(lake, name))


def evaluations(run: RunReader) -> list[Evaluation]:
    """Return the run's numbers on its held-out prompts."""
    frame = run.scan("evaluations").filter(pl.col("benchmark") == HELD_OUT).collect()
    return [Evaluation(**row) for row in frame.to_dicts()]


def rows(run: RunReader, table: str, wanted: Filter) -> list[dict[str, Any]]:
    """Return the rows of a table that pass the filter, in the order in which they were made."""
    frame = run.scan(table, iteration=wanted.iteration).with_row_index("_order")
    if wanted.task is not None:
        prompts = run.scan("prompts").filter(pl.col("task") == wanted.task)
        frame = frame.join(prompts.select("prompt_id").unique(), on="prompt_id", how="semi")
    if wanted.unscored:
        frame = frame.filter(pl.col("status") != SCORED)
    if wanted.aspect is not None or wanted.rating is not None:
        frame = frame.filter(_rated(wanted.aspect, wanted.rating))
    frame = frame.sort("_order").drop("_order")
    if wanted.limit is not None:
        frame = frame.head(wanted.limit)
    return frame.collect().to_dicts()


def _rated(aspect: str | None, rating: int | None) -> pl.Expr:
    """Whether any aspect has this name and this rating."""
    element = pl.element().struct
    match = pl.lit(value=True)
    if aspect is not None:
        match = match & (element.field("name") == aspect)
    if rating is not None:
        match = match & (element.field("rating") == rating)
    return pl.col("aspects").list.eval(match).list.any()


def status(run: RunReader, iteration: int | None = None) -> dict[str, Json]:
    """Return what a run has done: each iteration's checkpoint, metrics, counts and seconds."""
    numbers = evaluations(run)
    checkpoints = {row["iteration"]: row for row in run.scan("checkpoints").collect().to_dicts()}
    stages = run.journal.stages()
    last = max((state.iteration for state in stages), default=-1)
    return {
        "run": run.folder.name,
        "ended": _ended(run),
        "iterations": [
            {
                "iteration": number,
                "checkpoint": checkpoints.get(number, {}).get("checkpoint_id"),
                "metrics": {
                    e.metric: {"value": e.value, "stderr": e.stderr, "n": e.n}
                    for e in numbers
                    if e.iteration == number
                },
                "counts": _counts(run, number),
                "seconds": {s.stage: round(s.seconds, 3) for s in stages if s.iteration == number},
                "stages": [
                    {
                        "stage": s.stage,
                        "planned": s.planned,
                        "done": s.done,
                        "tokens": int(s.totals.get("tokens", 0)),
                    }
                    for s in stages
                    if s.iteration == number
                ],
            }
            for number in range(last + 1)
            if iteration is None or number == iteration
        ],
    }


def _ended(run: RunReader) -> Json:
    """Return why the run ended before its last iteration, or None."""
    ends = run.journal.events("end")
    return ends[-1] if ends else None


def _counts(run: RunReader, iteration: int) -> dict[str, Json]:
    def count(table: str) -> int:
        return sum(p.rows for p in run.journal.parts(table=table, iteration=iteration))

    unscored = (
        run.scan("critiques", iteration=iteration)
        .filter(pl.col("status") != SCORED)
        .group_by("status")
        .len()
        .sort("status")
        .collect()
    )
    yields = (
        run.scan("yields", iteration=iteration).group_by("outcome").len().sort("outcome").collect()
    )
    return {
        "candidates": count("candidates"),
        "critiques": count("critiques"),
        "unscored": dict(unscored.iter_rows()),
        "pairs": count("pairs"),
        "demonstrations": count("demonstrations"),
        "prompts_by_outcome": dict(yields.iter_rows()),
    }


def prompt_story(run: RunReader, prompt_id: str, iteration: int | None) -> dict[str, Any]:
    """Return a prompt with its candidates, what was said of each, and what was made of them."""
    prompt = run.scan("prompts").filter(pl.col("prompt_id") == prompt_id).collect()
    tables = ("candidates", "critiques", "rewards", "pairs", "demonstrations", "yields", "scores")
    story: dict[str, Any] = {"run": run.folder.name, "prompt": prompt.row(0, named=True)}
    for table in tables:
        frame = run.scan(table, iteration=iteration).filter(pl.col("prompt_id") == prompt_id)
        story[table] = frame.collect().to_dicts()
    return story


def run_with_prompt(lake: Path, prompt_id: str, name: str | None) -> tuple[RunReader, str]:
    """Return the run that holds a prompt (the latest, or the named one), and the prompt's whole id.

    The beginning of an id will do where only one prompt has it.

    Raises:
        NoSuchPromptError: if no run has it, or several prompts begin like that.
    """
    for candidate in [name] if name else reversed(run_names(lake)):
        run = open_run(lake, candidate)
        ids = run.scan("prompts").select("prompt_id").unique().collect()["prompt_id"]
        found = ids.filter((ids == prompt_id) | ids.str.starts_with(prompt_id)).to_list()
        if prompt_id in found or len(found) == 1:
            return run, prompt_id if prompt_id in found else found[0]
        run.close()
        if found:
            raise NoSuchPromptError(
                f"{len(found)} prompts begin with {prompt_id!r}: say more of it"
            )
    where = f"run {name}" if name else f"any run of {lake}"
    raise NoSuchPromptError(
        f"prompt {prompt_id!r} is not in {where}; `lpfloop critiques RUN` lists prompt ids"
    )
