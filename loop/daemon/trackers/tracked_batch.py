"""The data sent to trackers: an iteration's numbers, in rows."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol


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

    def as_json(self) -> str:
        """Return the batch as the adapter's process reads it."""
        return json.dumps(asdict(self))


def read_batch(text: str) -> TrackedBatch:
    """Read the JSON of `as_json`."""
    told: dict[str, Any] = json.loads(text)
    rows = tuple(TrackedRow(**row) for row in told.pop("rows"))
    return TrackedBatch(rows=rows, **told)


class SendsBatch(Protocol):
    """An adapter: the function `send` of its module."""

    def __call__(self, batch: TrackedBatch, folder: Path) -> None:
        """Give the batch to the library, whose files are in `folder`."""
        ...
