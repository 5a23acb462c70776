"""The numbers of all steps of a finished training, as the child leaves them beside its model.

They are those of the trainer's own state, which its sealed checkpoints keep: a step that was made
again after a crash is there once, as it was last. Times are not among them.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...stores.durable import write_file

HISTORY = "history.jsonl"

TOKEN = (
    "token_logps/chosen",
    "token_logps/ref_chosen",
    "token_logps/rejected",
    "token_logps/ref_rejected",
)
"""DPO's numbers of a step: nats a token of an answer, averaged over pairs.

`ref`: by the reference.
"""
BELOW = "token_logps/chosen_below_ref"
"""The share of the step's pairs whose chosen answer is less probable than by the reference."""

StepNumbers = Mapping[str, float]
"""The numbers of one step by TRL's names, `step` among them."""


def told_of_steps(history: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the steps of a trainer's log; its summaries have no loss."""
    return [
        {name: value for name, value in row.items() if _is_number(value)}
        for row in history
        if "loss" in row
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def write_history(work: Path, steps: Sequence[StepNumbers]) -> Path:
    """Leave the numbers of the steps in the work folder."""
    path = work / HISTORY
    write_file(path, "".join(f"{json.dumps(step)}\n" for step in steps).encode())
    return path


def read_history(work: Path) -> list[dict[str, float]]:
    """Return what `write_history` left."""
    return [json.loads(line) for line in (work / HISTORY).read_text().splitlines()]
