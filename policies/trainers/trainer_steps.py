"""A training's steps, as the child writes them to `metrics.jsonl`, one row a line.

A row's `event` is `start` (of the child), `step` (one was made), or `answers` (those of a step wait
for what the parent thinks of them, see `reward_exchange`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = "metrics.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerProgress:
    """One step; `metrics` has TRL's names, `rewards/margins`, `logps/chosen` and more.

    For an online method it is one of its own steps, with the seconds by use. A step that learned
    nothing has no `loss`.
    """

    step: int
    max_steps: int
    metrics: Mapping[str, float]


def append_row(work: Path, row: Mapping[str, Any]) -> None:
    """Append one row to `metrics.jsonl`; the leading newline ends a line that a kill cut short."""
    with (work / STEPS).open("a") as f:
        f.write(f"\n{json.dumps(row)}\n")


def new_lines(path: Path, offset: int) -> tuple[list[str], int]:
    """Return the whole lines of `path` after byte `offset`, and the offset after them."""
    if not path.exists():
        return [], offset
    with path.open("rb") as f:
        f.seek(offset)
        data = f.read()
    end = data.rfind(b"\n") + 1
    return data[:end].decode(errors="replace").splitlines(), offset + end


def parse_row(line: str) -> dict[str, Any] | None:
    """Return the row of a line of `metrics.jsonl`; None for a line that a kill cut short."""
    try:
        row: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return row


def progress_of(row: Mapping[str, Any]) -> TrainerProgress:
    """Return the step of a row of `metrics.jsonl`."""
    return TrainerProgress(step=row["step"], max_steps=row["max_steps"], metrics=row["metrics"])


def read_steps(path: Path) -> list[TrainerProgress]:
    """Return the steps in `metrics.jsonl`, once each: a resume repeats those after its point."""
    steps: list[TrainerProgress] = []
    for row in map(parse_row, new_lines(path, 0)[0]):
        if row and row["event"] == "start":
            steps = [s for s in steps if s.step <= row["resumed_from"]]
        elif row and row["event"] == "step":
            steps.append(progress_of(row))
    return steps
