"""The reason of a failed training: the child's own report, its signal, exit code or log."""

import re
import signal
from pathlib import Path

from ..engines.engine import PASSING
from .checkpoints import checkpoint_step, is_sealed, newest_first
from .job import FaultKind, TrainingError, TrainJob
from .work_folder import FAULT, STEPS, new_lines, read_json, read_steps

TRANSIENT: frozenset[FaultKind] = frozenset({"killed", "failed", "hung", "incomplete"})
"""Kinds that may succeed on a retry; others would be refused, or diverge, again."""

SIGNALLED = re.compile(r"<Signals\.(SIG\w+): \d+>|Signal \d+ \((SIG\w+)\) received")
RANK = re.compile(r"^\[rank\d+\]: ?")
"""torch's prefix of each line of an exception, if there are several processes."""

FINAL = re.compile(
    r"[\w.]*(Value|Type|Key|Index|Attribute|Import|ModuleNotFound|OS|FileNotFound|NotADirectory"
    r"|Permission|Runtime|Safetensor|Validation|NotImplemented|Assertion|JSONDecode)Error\b"
)
"""Exceptions of libraries about a setting or a file, though some are also about the machine."""

EXCEPTION = re.compile(r"^[\w.]*(Error|Exception|Exit|Interrupt)\b")
LAUNCHER_TALK = re.compile(
    r"^\s|^Traceback|^subprocess\.CalledProcessError|^torch\.distributed|^[=-]{5,}|^[EWI]\d{4} "
    r"|^srun: |^slurmstepd: "
)


def read_fault(
    job: TrainJob, code: int, log: Path, offset: int, *, began: bool
) -> TrainingError | None:
    """Return the reason of the child's failure; None for the exit code 0.

    `offset` is the length of the log, in bytes, when the child started. An error about a setting, a
    model or the data is final if the child raised it before training `began`.
    """
    if code == 0:
        return None
    fault = read_json(job.folder(FAULT))
    if fault is not None:
        kind, message = fault["kind"], fault["message"]
        return TrainingError(kind, message if kind == "halted" else f"{message}; log: {log}")
    lines, _ = new_lines(log, offset)
    name, where = _killed_by(code, lines), place(job)
    if name:
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        message = f"the trainer was killed by {name}{hint} {where}; log: {log}"
        return TrainingError("killed", message)
    last = _last_meaningful(lines)
    if FINAL.match(last) and not PASSING.search(last) and not began:
        message = f"the trainer cannot train {job.model} as configured: {last}; log: {log}"
        return TrainingError("refused", message)
    message = f"the trainer failed {where} with exit code {code}: {last}; log: {log}"
    return TrainingError("failed", message)


def halted_error(job: TrainJob) -> TrainingError:
    """Return the end of a training after a request, with the step from which it will go on."""
    return TrainingError("halted", f"training was interrupted {place(job)}; {continuation(job)}")


def continuation(job: TrainJob) -> str:
    """Return a sentence with the step from which an interrupted training goes on."""
    newest = next(filter(is_sealed, newest_first(job.folder("checkpoints"))), None)
    if newest is None:
        return "it will begin again"
    return f"it continues from its checkpoint after step {checkpoint_step(newest)}"


def place(job: TrainJob) -> str:
    """Return a training's progress, for a message."""
    steps = read_steps(job.folder(STEPS))
    if not steps:
        return "before its first step"
    return f"after step {steps[-1].step} of {steps[-1].max_steps}"


def _killed_by(code: int, lines: list[str]) -> str | None:
    """Return the name of the signal that ended the launcher, or by the log the worker."""
    if code < 0:
        return signal.Signals(-code).name
    matches = [m for m in map(SIGNALLED.search, reversed(lines)) if m]
    return (matches[0][1] or matches[0][2]) if matches else None


def _last_meaningful(lines: list[str]) -> str:
    """Return the log's last line about the child's failure, not the launcher's."""
    bare = [line for line in (RANK.sub("", line) for line in lines) if line]
    own = [line for line in bare if not LAUNCHER_TALK.search(line)] or bare
    raised = [line for line in own if EXCEPTION.search(line)] or own
    return raised[-1].strip()[:300] if raised else "it wrote nothing"
