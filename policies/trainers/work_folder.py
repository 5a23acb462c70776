"""The files by which a training's parent and child communicate, in the training's work folder.

- `job.json`: the job (`job.TrainJob`).
- `orders.json`, by the parent: how often to save, and whether to save and end.
- `metrics.jsonl`, by the child: one row for each start, step and question.
- `alive`: the child touches it while it computes.
- `fault.json` or `result.json`, by the child, last: the outcome.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ...stores.durable import write_file

STEPS = "metrics.jsonl"
"""The `event` of its rows is `start` (of the child), `step` (one was made), or `answers` (a step's
answers wait for the parent's scores, see `step_files`)."""
ORDERS = "orders.json"
PULSE = "alive"
LOCK = "trainer.lock"
FAULT = "fault.json"
RESULT = "result.json"
CACHE = "cache"
"""The folder of the rows and the reference log-probabilities that `datasets` keeps."""

POLL_S = 0.2
"""How often parent and child look for each other's files."""
TAIL = 10
"""The last steps whose means a result reports: one step of a few dozen pairs is noise."""
TOKENS = "num_tokens"
"""TRL's count of the tokens that it trained on."""
TOKEN = (
    "token_logps/chosen",
    "token_logps/ref_chosen",
    "token_logps/rejected",
    "token_logps/ref_rejected",
)
"""DPO's log-probabilities in nats a token, averaged over a step's pairs; `ref`: the reference's."""
BELOW = "token_logps/chosen_below_ref"
"""The share of the step's pairs whose chosen answer is less probable than under the reference."""

Turn = Literal["go on", "save", "end"]
"""A trainer's action after a step; `end` saves first."""

StepNumbers = Mapping[str, float]
"""The metrics of one step by TRL's names, `step` among them."""


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if the file is missing or damaged."""
    try:
        value: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """`checkpoint_s`: seconds of training between checkpoints; `end`: save, then end.

    A resume from any checkpoint gives the same weights. So orders are not part of the job, and
    may change while it runs.
    """

    checkpoint_s: float = math.inf
    end: bool = False


def write_orders(work: Path, orders: Orders) -> None:
    """Write the orders, which the child's first process reads after every step."""
    write_file(work / ORDERS, json.dumps(asdict(orders)).encode())


def read_orders(work: Path) -> Orders:
    """Return the orders, or the defaults if the file is missing."""
    orders = read_json(work / ORDERS)
    return Orders() if orders is None else Orders(**orders)


class Pace:
    """Decides when a trainer saves. The time that saving takes does not count."""

    def __init__(self, work: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._now = now
        self._since = now()

    def turn(self) -> Turn:
        """Return the action after a step."""
        orders = read_orders(self._work)
        if orders.end:
            return "end"
        return "save" if self._now() - self._since >= orders.checkpoint_s else "go on"

    def restart(self) -> None:
        """Restart the clock: a checkpoint has just been made."""
        self._since = self._now()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerProgress:
    """One step; `metrics` has TRL's names, `rewards/margins`, `logps/chosen` and more.

    A step of an online method also has the seconds of its parts. A step without lessons lacks
    `loss`.
    """

    step: int
    max_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPace:
    """The last step of a training, its loss, and the speed.

    The speed is measured over the steps since the trainer started, without the first: None until
    there are two. `eta_s` is the seconds until the last step.
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


def training_pace(work: Path) -> TrainingPace | None:
    """Return the progress of the training in a work folder; None before its first step."""
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


def final_means(steps: Sequence[StepNumbers]) -> dict[str, float]:
    """Return the metrics of the last `TAIL` steps, each averaged over the steps that have it."""
    tail = steps[-TAIL:]
    names = sorted({name for step in tail for name in step} - {"step"})
    return {name: statistics.fmean(s[name] for s in tail if name in s) for name in names}


def logged_steps(history: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the steps of a trainer's log without its summaries, which lack a loss.

    The log is part of the trainer's state, which checkpoints keep: a step that was made again after
    a crash is there once.
    """
    return [
        {k: v for k, v in row.items() if isinstance(v, int | float) and math.isfinite(v)}
        for row in history
        if "loss" in row
    ]
