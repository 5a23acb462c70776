"""Names of a run's models: `M_2`, `latest`, `best`, or the beginning of a checkpoint's id.

`M_2@20` is the policy that the training of M_2 published after step 20. `RUN:M_2` names the run,
too. Without a run, the latest one that made models is used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ....stores.frames import frame_rows
from ....stores.lake import RUN_NAME, RunReader, run_names
from ....stores.records import Checkpoint
from .best_model import best_kept, best_model
from .runs import NoSuchRunError, open_run

LATEST, BEST = "latest", "best"
PUBLISHED = ""
"""The default model: the best that the loop keeps, else the latest."""
NUMBER = re.compile(r"[Mm]_([0-9]{1,6})(?:@([0-9]{1,9}))?")
ID = re.compile(r"[0-9a-f]{1,64}")
OWN = f"{NUMBER.pattern}|{LATEST}|{BEST}"
"""The names other than ids: `M_2`, `latest`, `best`."""
SHORTEST_ID = 6
"""Fewer digits of an id behind a run's name could be the port of a server."""
_NAME = re.compile(rf"(?:({RUN_NAME.pattern}):)?({OWN})")
_OF_RUN = re.compile(rf"({RUN_NAME.pattern}):({OWN}|[0-9a-f]{{{SHORTEST_ID},64}})")
FORMS = "M_T, M_T@STEP, latest, best, or the beginning of a checkpoint's id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """A requested model; `run` is None if the name does not contain one."""

    run: str | None
    which: str


def model_name(text: str) -> ModelName | None:
    """Read `M_2`, `latest`, `best`, or one of these or an id behind `RUN:`; None for others."""
    match = _NAME.fullmatch(text) or _OF_RUN.fullmatch(text)
    return None if match is None else ModelName(run=match[1], which=match[2])


def checkpoints(run: RunReader) -> list[Checkpoint]:
    """Return the run's policies M_t, M_0 first."""
    return _rows(run, pl.col("at_step").is_null())


def step_policies(run: RunReader) -> list[Checkpoint]:
    """Return the policies that a run's trainings published at a step, by iteration and step."""
    return _rows(run, pl.col("at_step").is_not_null())


def _rows(run: RunReader, condition: pl.Expr) -> list[Checkpoint]:
    rows = (
        run.scan("checkpoints").filter(condition).sort("iteration", "at_step", maintain_order=True)
    )
    return frame_rows(Checkpoint, rows.collect())


def open_with_models(lake: Path, name: str | None) -> RunReader:
    """Open a run for reading; without a name, the one written last that has a checkpoint.

    Raises:
        NoSuchRunError: if no such run exists.
    """
    if name is not None:
        return open_run(lake, name)
    for latest in reversed(run_names(lake)):
        run = open_run(lake, latest)
        if run.scan("checkpoints").select(pl.len()).collect().item():
            return run
        run.close()
    if run_names(lake):
        raise NoSuchRunError(f"no run in {lake} has a model yet")
    return open_run(lake, None)


def model_of(run: RunReader, which: str) -> Checkpoint:
    """Return the checkpoint of a run that a name means.

    Raises:
        NoSuchRunError: if no checkpoint, or several, match.
        NoSuchFigureError: if no measured figure decides the best.
    """
    made = checkpoints(run)
    if not made:
        raise NoSuchRunError(f"run {run.folder.name} does not have a model yet")
    if which == LATEST:
        return made[-1]
    if which == PUBLISHED:
        return published_of(run, made)
    if which == BEST:
        return best_model(run, made).checkpoint
    number = NUMBER.fullmatch(which)
    every = [*made, *step_policies(run)]
    found = [c for c in every if number and c.name == _write_name(number)]
    found = found or [c for c in every if ID.fullmatch(which) and c.checkpoint_id.startswith(which)]
    if not found:
        known = ", ".join(f"{c.name} {c.checkpoint_id[:12]}" for c in every)
        raise NoSuchRunError(
            f"run {run.folder.name} does not have a model {which!r}: give {FORMS}; it has {known}"
        )
    if len({c.checkpoint_id for c in found}) > 1:
        raise NoSuchRunError(
            f"{len(found)} models of run {run.folder.name} begin with {which!r}: give more "
            "characters"
        )
    return found[0]


def _write_name(number: re.Match[str]) -> str:
    """Return a model's name as it is written."""
    iteration, step = number.groups()
    return f"M_{int(iteration)}" + ("" if step is None else f"@{int(step)}")


def published_of(run: RunReader, made: Sequence[Checkpoint]) -> Checkpoint:
    """Return the model that a run has to show: the best that its loop keeps, else the latest."""
    kept = best_kept(run)
    return next((c for c in made if c.iteration == kept), made[-1])


def iteration_of(run: RunReader, text: str) -> int:
    """Return the iteration that a number or a model's name means.

    Raises:
        NoSuchRunError: if it is neither, the run lacks the model, or the model is not an M_T.
    """
    if text.isdecimal():
        return int(text)
    found = model_of(run, text)
    if found.at_step is not None:
        raise NoSuchRunError(
            f"{found.name} is a checkpoint within the training of M_{found.iteration}, not an "
            f"iteration: give M_{found.iteration}"
        )
    return found.iteration


def policy_of(run: RunReader, text: str) -> Checkpoint:
    """Return the policy that an iteration's number or a model's name means.

    Raises:
        NoSuchRunError: if the run lacks the policy.
    """
    return model_of(run, f"M_{text}" if text.isdecimal() else text)
