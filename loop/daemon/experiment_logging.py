"""Sends a run's numbers to trackers after each iteration, from the stored rows.

A tracker never delays a run: it works in a separate process, and unsent points are retried after
the next iteration. Sent points are recorded in the run, so that a resumed run sends no duplicates.
"""

import json
import math
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from ...configs.schema import ConfigError, RunConfig, Tracker
from ...stores.durable import make_folder, write_file
from ...stores.installation import pip_install
from ...stores.records import Alarm, Evaluation, Statistic
from ...stores.schemas import TABLES
from ...stores.side_evals import smoke_test_of
from ..run.run import Run
from .trackers import TrackedBatch, TrackedRow

FOLDER, NOTE = "tracking", "told.json"
SEND_S = 120.0
"""Seconds that a tracker has for an iteration's numbers."""

R = TypeVar("R", Statistic, Evaluation, Alarm)

TRAINING_STEP, ITERATION = "training_step", "iteration"


def require_trackers(config: RunConfig) -> None:
    """Refuse a tracker whose library is not installed.

    Raises:
        ConfigError: naming it, and the command that installs it.
    """
    for name in config.tracking.to:
        if find_spec(name) is None:
            raise ConfigError(f"tracking.to: {name} is not installed: {pip_install(name)}")


@dataclass(slots=True)
class TrackerNote:
    """The points sent to a tracker: of which iterations, in how many rows, after how many steps.

    `identity` is the tracker's id of the run.
    """

    identity: str = field(default_factory=lambda: uuid4().hex)
    iterations: list[int] = field(default_factory=list[int])
    rows: int = 0
    steps: dict[str, int] = field(default_factory=dict[str, int])


def log_iteration(run: Run, iteration: int) -> None:
    """Send each tracker its pending iterations up to this one."""
    for name in run.config.tracking.to:
        folder = make_folder(_folder(run) / name)
        note = folder / f"{run.name}.{NOTE}"
        logged = _read(note)
        for number in range(iteration + 1):
            if number not in logged.iterations:
                rows, steps = iteration_rows(run, number, logged)
                # Before the first telling, so that a second one has the same identity.
                write_file(note, json.dumps(asdict(logged)).encode())
                batch = TrackedBatch(
                    run=run.name,
                    identity=logged.identity,
                    project=run.config.tracking.project,
                    folder=str(_folder(run)),
                    iteration=number,
                    rows=rows,
                )
                failed = _send(run, name, batch)
                if failed is not None:
                    text = f"{name} could not be told of iteration {number}: {failed}"
                    run.reporter.note(text, "warning", code="W-TRACKER", iteration=number)
                    break
                logged.iterations.append(number)
                logged.rows += len(rows)
                logged.steps = steps
                write_file(note, json.dumps(asdict(logged)).encode())


def _folder(run: Run) -> Path:
    configured = run.config.tracking.folder
    return run.store.folder / FOLDER if configured is None else Path(configured).absolute()


def _read(note: Path) -> TrackerNote:
    try:
        fields: dict[str, Any] = json.loads(note.read_bytes())
        return TrackerNote(**fields)
    except (FileNotFoundError, ValueError, TypeError):
        return TrackerNote()


def iteration_rows(
    run: Run, iteration: int, logged: TrackerNote
) -> tuple[tuple[TrackedRow, ...], dict[str, int]]:
    """Return an iteration's rows in their order, and the steps of each method up to its end."""
    steps, found = dict(logged.steps), list[tuple[str, int, dict[str, float]]]()
    for (method, step), values in _training_numbers(run, iteration):
        found.append((TRAINING_STEP, logged.steps.get(method, 0) + step, values))
        steps[method] = max(steps.get(method, 0), logged.steps.get(method, 0) + step)
    for values in (_policy_numbers(run, iteration), _stage_counts(run, iteration)):
        if values:
            found.append((ITERATION, iteration, values))
    rows = (
        TrackedRow(place=logged.rows + i, axis=axis, x=x, values=values)
        for i, (axis, x, values) in enumerate(found)
    )
    return tuple(rows), steps


def _training_numbers(
    run: Run, iteration: int
) -> Iterator[tuple[tuple[str, int], dict[str, float]]]:
    """Yield the numbers of each training step, by method and step."""
    steps: defaultdict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in _stored_rows(run, iteration, Statistic):
        steps[row.method, row.step][f"train/{row.method}/{row.metric}"] = row.value
    yield from sorted(steps.items())


def _policy_numbers(run: Run, iteration: int) -> dict[str, float]:
    """Return the numbers about M_t by benchmark and metric, and how many alarms of each kind."""
    rows = sorted(
        _stored_rows(run, iteration, Evaluation), key=lambda row: (row.benchmark, row.metric)
    )
    found = {
        f"evaluation/{row.benchmark}/{row.metric}": row.value
        for row in rows
        if math.isfinite(row.value)
    }
    alarms = list(_stored_rows(run, iteration, Alarm))
    stops = {"alarms/stop": float(sum(alarm.stops for alarm in alarms))} if alarms else {}
    return found | dict(Counter(f"alarms/{alarm.kind}" for alarm in alarms)) | stops


def _stage_counts(run: Run, iteration: int) -> dict[str, float]:
    """Return the counts of each stage of an iteration, without zeros: rows, calls, and others."""
    return {
        f"stages/{state.stage}/{name}": float(value)
        for state in run.store.journal.stages()
        if state.iteration == iteration and smoke_test_of(state.stage) is None
        for name, value in sorted(state.totals.items())
        if value
    }


def _stored_rows(run: Run, iteration: int, row_type: type[R]) -> Iterator[R]:
    """Yield an iteration's rows of one table, without the smoke test's."""
    journal = run.store.journal
    for state in journal.stages():
        if state.iteration == iteration and smoke_test_of(state.stage) is None:
            for key in journal.keys(iteration, state.stage):
                if TABLES[row_type] in journal.parts_of(key):
                    yield from run.store.rows(row_type, key)


def _send(run: Run, name: Tracker, batch: TrackedBatch) -> str | None:
    """Give the rows to a tracker's process; return its error, if any."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "lpfloop.loop.daemon.trackers", name],
            input=json.dumps(asdict(batch)),
            capture_output=True,
            text=True,
            timeout=SEND_S,
            check=False,
            env=_environment(run.config, _folder(run)),
        )
    except subprocess.TimeoutExpired:
        return f"no end after {SEND_S:g} s"
    return None if done.returncode == 0 else (done.stderr.strip() or "no reason").splitlines()[-1]


def _environment(config: RunConfig, folder: Path) -> dict[str, str]:
    """Return the environment of a tracker's process: offline, with its files in the folder."""
    return {
        **os.environ,
        "WANDB_MODE": "online" if config.tracking.online else "offline",
        "WANDB_ERROR_REPORTING": "false",
        "TRACKIO_DIR": str(folder / "trackio"),
        "HF_HUB_OFFLINE": "1",
    }
