# pyright: basic, reportMissingImports=false
"""The process of one tracker: reads an iteration's rows, gives them to the library, ends.

`python -m lpfloop.loop.daemon.trackers NAME` reads a `TrackedBatch` as JSON from standard input.
Sending the same batch again is safe: a point is never there twice.
"""

import io
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ...stores.durable import make_folder, write_file


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRow:
    """Numbers that belong to one point of an axis.

    `axis` is the unit of `x`: `training_step` over all trainings of a method, or `iteration`.
    `place` is the row's among all rows of the run, the same each time it is sent.
    """

    place: int
    axis: str
    x: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedBatch:
    """An iteration's rows, and their destination; `run` is the run's name, `identity` its id."""

    run: str
    identity: str
    project: str
    folder: str
    iteration: int
    rows: tuple[TrackedRow, ...]


def tensorboard(batch: TrackedBatch, folder: Path) -> None:
    """Write a file of the iteration's events, the same file each time; they are read in order."""
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
    name = f"events.out.tfevents.{batch.iteration:06d}.{batch.run}"
    write_file(make_folder(folder / batch.run) / name, data.getvalue())


def trackio(batch: TrackedBatch, _: Path) -> None:
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


def wandb(batch: TrackedBatch, folder: Path) -> None:
    """Log the rows; the server drops a row whose place it has already."""
    import wandb as library

    run = library.init(
        project=batch.project,
        name=batch.run,
        id=batch.identity,
        resume="allow",
        dir=str(make_folder(folder)),
        settings=library.Settings(silent=True, disable_git=True, console="off"),
    )
    for axis in ("training_step", "iteration"):
        run.define_metric(axis, hidden=True)
    run.define_metric("train/*", step_metric="training_step")
    for name in ("evaluation/*", "stages/*"):
        run.define_metric(name, step_metric="iteration")
    for row in batch.rows:
        run.log({row.axis: row.x, **row.values}, step=row.place)
    run.finish()


def main(name: str) -> None:
    """Give the batch on standard input to the tracker `name`."""
    batch = TypeAdapter(TrackedBatch).validate_json(sys.stdin.read())
    send = {"tensorboard": tensorboard, "trackio": trackio, "wandb": wandb}[name]
    send(batch, Path(batch.folder) / name)


if __name__ == "__main__":
    main(sys.argv[1])
