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
TOKENS = "num_tokens"
"""TRL's count of the tokens that it trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerProgress:
    """One step; `metrics` has TRL's names, `rewards/margins`, `logps/chosen` and more.

    For an online method it is one of its own steps, with the seconds by use. A step that learned
    nothing has no `loss`.
    """

    step: int
    max_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPace:
    """How far a training is: its last step, the loss there, and how fast it goes on.

    The speed is that of the steps since the trainer started, the first one excepted: None until
    there are two. `eta_s` are the seconds until the last step.
    """

    step: int
    max_steps: int
    loss: float | None
    tokens_per_s: float | None
    eta_s: float | None

    def __str__(self) -> str:
        parts = [f"step {self.step} of {self.max_steps}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.3g}")
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:,.0f} tokens/s")
        return ", ".join(parts)


def training_pace(work: Path) -> TrainingPace | None:
    """Return how far the training in a work folder is; None before its first step."""
    rows: list[dict[str, Any]] = []
    for row in filter(None, map(parse_row, new_lines(work / STEPS, 0)[0])):
        rows = [] if row["event"] == "start" else [*rows, row]
    rows = [row for row in rows if row["event"] == "step" and "at" in row]
    if not rows:
        return None
    first, last = rows[0], rows[-1]
    seconds, steps = last["at"] - first["at"], last["step"] - first["step"]
    tokens = last["metrics"].get(TOKENS, 0) - first["metrics"].get(TOKENS, 0)
    left = last["max_steps"] - last["step"]
    return TrainingPace(
        step=last["step"],
        max_steps=last["max_steps"],
        loss=last["metrics"].get("loss"),
        tokens_per_s=tokens / seconds if tokens > 0 and seconds > 0 else None,
        eta_s=left * seconds / steps if steps > 0 else None,
    )


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
