# pyright: basic, reportMissingImports=false
"""TensorBoard: a file of events for each iteration, the same file each time it is sent."""

import io
import time
from pathlib import Path

from ....stores.durable import make_folder, write_file
from .tracked_batch import TrackedBatch

VERSION = "brain.Event:2"
"""The content of a file's first event."""


def send(batch: TrackedBatch, folder: Path) -> None:
    """Write the iteration's events; TensorBoard reads files in the order of their names."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    now, data = time.time(), io.BytesIO()
    writer = RecordWriter(data)
    writer.write(Event(wall_time=now, file_version=VERSION).SerializeToString())
    for row in batch.rows:
        values = [Summary.Value(tag=name, simple_value=v) for name, v in row.values.items()]
        event = Event(wall_time=now, step=row.x, summary=Summary(value=values))
        writer.write(event.SerializeToString())
    name = f"events.out.tfevents.{batch.iteration:06d}.{batch.run}"
    write_file(make_folder(folder / batch.run) / name, data.getvalue())
