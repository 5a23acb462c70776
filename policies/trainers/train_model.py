"""Training in a child process: start, follow, restart if needed, and check the result.

The parent (this module and its `trainer_` siblings, no torch) writes `job.json` into the job's work
folder, starts `train_worker` by `launch` in a separate session, follows `metrics.jsonl`, and
accepts the outcome only if `result.json`, which the child writes last, names every file of the
finished model with its hash.
No file in a work folder is trusted just for being there: a checkpoint counts if its manifest says
so and every byte agrees, so an interrupted job either continues bit-exactly or starts again.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from ...stores.durable import sweep
from ...stores.sealed import file_sha256
from ..engines.canary import CANARY
from .preflight import refuse_full_disk, refuse_unfit
from .prepared_rows import discard_unsealed
from .step_policies import is_finished
from .trainer_checkpoints import agrees, discard_unfit
from .trainer_faults import FAULT, TRANSIENT, TrainingError, halted, read_fault
from .trainer_history import HISTORY, StepNumbers, read_history
from .trainer_job import TrainJob, read_json, write_job
from .trainer_orders import MINUTES, Orders, write_orders
from .trainer_process import Watch, alone, discard_memory_of, run_worker
from .trainer_steps import TrainerProgress
from .warm_trainer import WarmTrainer

__all__ = ["TrainJob", "TrainResult", "TrainerProgress", "TrainingError", "train"]

logger = logging.getLogger("lpfloop.trainer")

RESULT = "result.json"
STALL_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A finished model: its folder, the means of the last steps' metrics, each step's numbers.

    An online method leaves the numbers of its steps in their rows, and `history` is empty.
    """

    output: Path
    steps: int
    metrics: Mapping[str, float]
    seconds: float
    history: Sequence[StepNumbers]


class Trainer(Protocol):
    """What makes a model of a job; see `train`, which is one."""

    def __call__(  # noqa: PLR0913 -- whom it tells, and how it is watched, by name
        self,
        job: TrainJob,
        *,
        log: Path,
        on_progress: Callable[[TrainerProgress], None] | None = None,
        on_answers: Callable[[int], None] | None = None,
        is_to_end: Callable[[], bool] = ...,
        checkpoint_minutes: float = ...,
        retries: int = ...,
        stall_s: float = ...,
        warm: WarmTrainer | None = ...,
    ) -> TrainResult:
        """Return the finished model."""
        ...


def train(  # noqa: PLR0913 -- whom it tells, and how it is watched, by name
    job: TrainJob,
    *,
    log: Path,
    on_progress: Callable[[TrainerProgress], None] | None = None,
    on_answers: Callable[[int], None] | None = None,
    is_to_end: Callable[[], bool] = lambda: False,
    checkpoint_minutes: float = MINUTES,
    retries: int = 0,
    stall_s: float = STALL_S,
    warm: WarmTrainer | None = None,
) -> TrainResult:
    """Run `job` to its end, continuing from its last whole checkpoint if it was interrupted.

    A job that has finished in its work folder is not run again. A child that was killed, failed,
    hung (`stall_s` seconds without a sign of life) or ended without a model is restarted up to
    `retries` times. `on_progress` is called for every step, `is_to_end` several times a second; an
    exception from either ends the child. Once `is_to_end`, the child finishes its step, makes a
    checkpoint and ends. `on_answers` is called with each step of an online method whose answers
    others than the trainer reward: it judges those that `reward_exchange.read_answers` returns, for
    as long as that takes, and leaves what it found by `write_judged`. `warm` may hold a process
    that waits for a job, and then runs this one.

    Raises:
        TrainingError: if there is no finished model; the message names the cause and the log. Of
            kind `halted`: since it was to end.
    """
    started = time.monotonic()
    watch = Watch(
        log=log,
        stall_s=stall_s,
        checkpoint_s=60 * checkpoint_minutes,
        on_progress=on_progress,
        on_answers=on_answers,
        is_to_end=is_to_end,
        warm=warm,
    )
    failed = 0
    while True:
        try:
            result = attempt(job, watch)
        except TrainingError as error:
            if error.kind in TRANSIENT and is_to_end():
                raise halted(job) from error
            failed += 1
            if error.kind not in TRANSIENT or failed > retries:
                raise
            logger.warning("%s; starting it again (%d of %d)", error, failed, retries)
        else:
            break
    metrics: dict[str, float] = result["metrics"]
    return TrainResult(
        output=job.folder("model"),
        steps=int(result["steps"]),
        metrics=metrics,
        seconds=time.monotonic() - started,
        history=read_history(job.output),
    )


def attempt(job: TrainJob, watch: Watch) -> dict[str, Any]:
    """Run the child once, unless the job has finished; return the content of `result.json`."""
    identity = prepare(job, patience_s=watch.stall_s)
    finished = read_result(job, identity)
    if finished is not None:
        return finished
    if watch.is_to_end():
        raise halted(job)
    refuse_unrewarded(job, watch)
    refuse_full_disk(job)
    write_orders(job.output, Orders(checkpoint_s=watch.checkpoint_s))
    watch.log.parent.mkdir(parents=True, exist_ok=True)
    offset = watch.log.stat().st_size if watch.log.exists() else 0
    try:
        code, began = run_worker(job, watch)
    finally:
        discard_memory_of(job)
    fault = read_fault(job, code, watch.log, offset, began=began)
    if fault is not None:
        raise fault
    finished = read_result(job, identity)
    if finished is None:
        message = f"the trainer exited without a complete model; log: {watch.log}"
        raise TrainingError("incomplete", message)
    return finished


def refuse_unrewarded(job: TrainJob, watch: Watch) -> None:
    """Refuse a training whose answers others reward than the trainer, if nobody asks them.

    Raises:
        TrainingError: of kind `refused`.
    """
    asked = job.online.asked_sources if job.online else ()
    if asked and watch.on_answers is None:
        names = " and ".join(asked)
        message = f"{job.method} is to be rewarded by the {names}, and `on_answers` asks nobody"
        raise TrainingError("refused", message)


def prepare(job: TrainJob, *, patience_s: float = STALL_S) -> str:
    """Check the job, write its `job.json`, remove what cannot be used; return its identity."""
    refuse_unfit(job)
    identity = write_job(job)
    with alone(job, patience_s=patience_s):
        sweep(job.output)
        job.folder(FAULT).unlink(missing_ok=True)
        discard_unsealed(job, identity)
        for checkpoint in discard_unfit(job.folder("checkpoints"), identity):
            logger.warning("removed %s: not a whole checkpoint of this job", checkpoint)
    return identity


def read_result(job: TrainJob, identity: str) -> dict[str, Any] | None:
    """Return `result.json` if it is this job's, complete, and the model's files agree."""
    result = read_json(job.folder(RESULT))
    if result is None or result.get("identity") != identity:
        return None
    if result["steps"] < result["max_steps"]:
        return None
    if not all(math.isfinite(v) for v in cast("dict[str, float]", result["metrics"]).values()):
        return None
    if not agrees(job.folder("model"), result["files"]):
        return None
    beside = {"canary": job.folder(CANARY), "history": job.folder(HISTORY)}
    whole = all(p.exists() and file_sha256(p) == result.get(n) for n, p in beside.items())
    published = cast("dict[str, str]", result.get("published", {})).items()
    whole = whole and all(is_finished(job, int(step), told) for step, told in published)
    return result if whole else None
