# pyright: basic, reportMissingImports=false
"""Sends a run's numbers to trackers after each iteration, from the stored rows.

A tracker never delays a run: its library works in a separate process, `python -m
lpfloop.loop.daemon.trackers NAME`, which reads a `TrackedBatch` as JSON from standard input. Unsent
points are retried after the next iteration. Sending the same batch again is safe: a point is never
there twice.
"""

import io
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from ...configs.schema import ConfigError, RunConfig, Tracker
from ...stores.durable import make_folder, write_file
from ...stores.installation import pip_install
from ...stores.keys import digest
from ...stores.records import Alarm, Evaluation, Statistic
from ...stores.schemas import TABLES
from ...stores.side_evals import smoke_test_of
from ..run.run import Run
from ..run.stop import START

FOLDER = "tracking"
SEND_S = 120.0
"""Seconds that a tracker has for an iteration's numbers."""
TRAINING_STEP, ITERATION = "training_step", "iteration"
R = TypeVar("R", Statistic, Evaluation, Alarm)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRow:
    """Numbers that belong to one point of an axis.

    `axis` is the unit of `x`: `training_step` over all trainings of a method, or `iteration`.
    `place` is the row's among all rows of the run, the same each time it is sent.
    """

    place: int
    iteration: int
    axis: str
    x: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedBatch:
    """The rows of some iterations, and their destination; `identity` is the run's id there."""

    run: str
    identity: str
    project: str
    folder: str
    rows: tuple[TrackedRow, ...]


def require_trackers(config: RunConfig) -> None:
    """Refuse a tracker whose library is not installed.

    Raises:
        ConfigError: naming it, and the command that installs it.
    """
    for name in config.tracking.to:
        if find_spec(name) is None:
            raise ConfigError(f"tracking.to: {name} is not installed: {pip_install(name)}")


def log_iteration(run: Run, iteration: int) -> None:
    """Send each tracker its pending iterations up to this one."""
    settings = run.config.tracking
    place = run.store.folder / FOLDER if settings.folder is None else Path(settings.folder)
    for name in settings.to:
        folder = make_folder(place.absolute() / name)
        note = folder / f"{run.name}.sent"
        sent = int(note.read_text()) if note.exists() else -1
        batch = TrackedBatch(
            run=run.name,
            identity=digest([run.name, run.store.journal.events(START)[0]])[:32],
            project=settings.project,
            folder=str(folder),
            rows=tuple(row for row in tracked_rows(run, iteration) if row.iteration > sent),
        )
        failed = _send(name, batch, online=settings.online) if batch.rows else None
        if failed is None:
            write_file(note, str(iteration).encode())
        else:
            text = f"{name} did not take the numbers of iteration {iteration}: {failed}"
            run.reporter.note(text, "warning", code="W-TRACKER", iteration=iteration)


def tracked_rows(run: Run, last: int) -> Iterator[TrackedRow]:
    """Yield the rows of all iterations up to `last` in their order."""
    place, before = 0, Counter[str]()
    for number in range(last + 1):
        steps: defaultdict[tuple[str, int], dict[str, float]] = defaultdict(dict)
        for row in _stored_rows(run, number, Statistic):
            steps[row.method, row.step][f"train/{row.method}/{row.metric}"] = row.value
        points = [
            (TRAINING_STEP, before[method] + step, values)
            for (method, step), values in sorted(steps.items())
        ]
        before.update(dict(sorted(steps)))
        if numbers := _numbers(run, number):
            points.append((ITERATION, number, numbers))
        for axis, x, values in points:
            yield TrackedRow(place=place, iteration=number, axis=axis, x=x, values=values)
            place += 1


def _numbers(run: Run, iteration: int) -> dict[str, float]:
    """Return the figures of M_t, its alarms by kind, and the counts of each stage without zeros."""
    found = {
        f"evaluation/{row.benchmark}/{row.metric}": row.value
        for row in _stored_rows(run, iteration, Evaluation)
        if math.isfinite(row.value)
    }
    for alarm in _stored_rows(run, iteration, Alarm):
        for name in (f"alarms/{alarm.kind}", *(["alarms/stop"] if alarm.stops else [])):
            found[name] = found.get(name, 0.0) + 1
    for state in run.store.journal.stages():
        if state.iteration == iteration and smoke_test_of(state.stage) is None:
            totals = {f"stages/{state.stage}/{name}": v for name, v in state.totals.items() if v}
            found |= totals
    return dict(sorted(found.items()))


def _stored_rows(run: Run, iteration: int, row_type: type[R]) -> Iterator[R]:
    """Yield an iteration's rows of one table, without the smoke test's."""
    journal = run.store.journal
    for state in journal.stages():
        if state.iteration == iteration and smoke_test_of(state.stage) is None:
            for key in journal.keys(iteration, state.stage):
                if TABLES[row_type] in journal.parts_of(key):
                    yield from run.store.rows(row_type, key)


def _send(name: Tracker, batch: TrackedBatch, *, online: bool) -> str | None:
    """Give the rows to a tracker's process, offline by default; return its error, if any."""
    settings = {
        "WANDB_MODE": "online" if online else "offline",
        "WANDB_ERROR_REPORTING": "false",
        "TRACKIO_DIR": batch.folder,
        "HF_HUB_OFFLINE": "1",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "lpfloop.loop.daemon.trackers", name],
            input=json.dumps(asdict(batch)),
            capture_output=True,
            text=True,
            timeout=SEND_S,
            check=False,
            env={**os.environ, **settings},
        )
    except subprocess.TimeoutExpired:
        return f"no end after {SEND_S:g} s"
    return None if done.returncode == 0 else (done.stderr.strip() or "no reason").splitlines()[-1]


# in the process of a tracker


def tensorboard(batch: TrackedBatch) -> None:
    """Write a file of the batch's events, the same file each time; they are read in order."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    now, data = time.time(), io.BytesIO()
    writer = RecordWriter(data)
    # What a file of events begins with.
    writer.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
    for row in batch.rows:
        values = [Summary.Value(tag=name, simple_value=v) for name, v in row.values.items()]
        event = Event(wall_time=now, step=row.x, summary=Summary(value=values))
        writer.write(event.SerializeToString())
    name = f"events.out.tfevents.{batch.rows[0].iteration:06d}.{batch.run}"
    write_file(make_folder(Path(batch.folder) / batch.run) / name, data.getvalue())


def trackio(batch: TrackedBatch) -> None:
    """Log the rows that the local database does not have yet; TRACKIO_DIR is its folder."""
    import trackio as library
    from trackio.sqlite_storage import SQLiteStorage

    name = f"{batch.run}-{batch.identity[:8]}"
    known = {log.get("step") for log in SQLiteStorage.get_logs(batch.project, name)}
    run = library.init(project=batch.project, name=name, resume="allow", embed=False)
    for row in batch.rows:
        if row.place not in known:
            run.log({row.axis: row.x, **row.values}, step=row.place)
    run.finish()


def wandb(batch: TrackedBatch) -> None:
    """Log the rows; the server drops a row whose place it has already."""
    import wandb as library

    run = library.init(
        project=batch.project,
        name=batch.run,
        id=batch.identity,
        resume="allow",
        dir=batch.folder,
        settings=library.Settings(silent=True, disable_git=True, console="off"),
    )
    for axis in (TRAINING_STEP, ITERATION):
        run.define_metric(axis, hidden=True)
    run.define_metric("train/*", step_metric=TRAINING_STEP)
    for name in ("evaluation/*", "alarms/*", "stages/*"):
        run.define_metric(name, step_metric=ITERATION)
    for row in batch.rows:
        run.log({row.axis: row.x, **row.values}, step=row.place)
    run.finish()


if __name__ == "__main__":
    send = {"tensorboard": tensorboard, "trackio": trackio, "wandb": wandb}[sys.argv[1]]
    send(TypeAdapter(TrackedBatch).validate_json(sys.stdin.read()))
