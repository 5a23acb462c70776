"""Training in a child process: start it, follow it, restart it if needed, and check the result.

The parent (no torch) writes `job.json` into the job's work folder, starts `train_worker` by
`launch`, follows `metrics.jsonl`, and accepts the outcome only if `result.json`, which the child
writes last, names every file of the finished model with its hash. No file in a work folder is
trusted because it exists: a checkpoint counts if it has a manifest and every byte agrees with it,
so an interrupted job either continues bit-exactly or starts again.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ...configs.training import TrainingConfig
from ...stores.durable import sweep
from ...stores.sealed import file_sha256
from ..engines.canary import CANARY
from .checkpoints import agrees, discard_unfit, discard_unsealed
from .checks import refuse_full_disk, refuse_unfit
from .faults import TRANSIENT, halted_error, read_fault
from .job import TrainingError, TrainJob, write_job
from .process import WarmTrainer, Watch, alone, discard_memory_of, run_worker
from .step_policies import is_finished
from .work_folder import (
    FAULT,
    RESULT,
    Orders,
    StepNumbers,
    TrainerProgress,
    read_json,
    write_orders,
)

logger = logging.getLogger("lpfloop.trainer")

DEFAULTS = TrainingConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A finished model: its folder, the means of the last steps' metrics, each step's metrics.

    An online method leaves the metrics of its steps in their rows, and `history` is empty.
    """

    output: Path
    steps: int
    metrics: Mapping[str, float]
    seconds: float
    history: Sequence[StepNumbers]


Trainer = Callable[..., TrainResult]
"""`train`, or its replacement in a dry run."""


def train(  # noqa: PLR0913 -- all but the job are optional, by name
    job: TrainJob,
    *,
    log: Path,
    on_progress: Callable[[TrainerProgress], None] | None = None,
    on_answers: Callable[[int], None] | None = None,
    is_to_end: Callable[[], bool] = lambda: False,
    checkpoint_minutes: float = DEFAULTS.checkpoint_minutes,
    retries: int = 0,
    hang_timeout_s: float = DEFAULTS.hang_timeout_s,
    warm: WarmTrainer | None = None,
) -> TrainResult:
    """Run `job` to its end, continuing from its last whole checkpoint if it was interrupted.

    A job that has finished in its work folder is not run again. A child that was killed, failed,
    hung or ended without a model is restarted up to `retries` times. `process.Watch` describes the
    other arguments. Once `is_to_end`, the child finishes its step, makes a checkpoint and ends.
    `on_answers` scores the answers that `step_files.read_answers` returns for a step, and
    leaves the scores by `write_judged`.

    Raises:
        TrainingError: if the model is not finished; the message names the cause and the log. Of
            kind `halted`, if the training was to end.
    """
    started = time.monotonic()
    watch = Watch(
        log=log,
        hang_timeout_s=hang_timeout_s,
        checkpoint_s=60 * checkpoint_minutes,
        on_progress=on_progress,
        on_answers=on_answers,
        is_to_end=is_to_end,
        warm=warm,
    )
    failed = 0
    while True:
        try:
            result = _attempt(job, watch)
            break
        except TrainingError as error:
            if error.kind in TRANSIENT and is_to_end():
                raise halted_error(job) from error
            failed += 1
            if error.kind not in TRANSIENT or failed > retries:
                raise
            logger.warning("%s; starting it again (%d of %d)", error, failed, retries)
    return TrainResult(
        output=job.folder("model"),
        steps=int(result["steps"]),
        metrics=result["metrics"],
        seconds=time.monotonic() - started,
        history=result["history"],
    )


def _attempt(job: TrainJob, watch: Watch) -> dict[str, Any]:
    """Run the child once, unless the job has finished; return the content of `result.json`."""
    identity = prepare(job, retry_timeout_s=watch.hang_timeout_s)
    finished = read_result(job, identity)
    if finished is not None:
        return finished
    if watch.is_to_end():
        raise halted_error(job)
    _refuse_unrewarded(job, watch)
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


def _refuse_unrewarded(job: TrainJob, watch: Watch) -> None:
    sources = job.online.reward_sources if job.online else ()
    if sources and watch.on_answers is None:
        names = " and ".join(sources)
        message = f"{job.method} is to be rewarded by the {names}, and `on_answers` is not set"
        raise TrainingError("refused", message)


def prepare(job: TrainJob, *, retry_timeout_s: float = DEFAULTS.hang_timeout_s) -> str:
    """Check the job, write its `job.json`, remove unusable files; return its identity."""
    refuse_unfit(job)
    identity = write_job(job)
    with alone(job, retry_timeout_s=retry_timeout_s):
        sweep(job.output)
        job.folder(FAULT).unlink(missing_ok=True)
        discard_unsealed(job.output, identity)
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
    canary = job.folder(CANARY)
    if not canary.exists() or file_sha256(canary) != result["canary"]:
        return None
    published = cast("dict[str, str]", result.get("published", {}))
    whole = all(is_finished(job, int(step), canary) for step, canary in published.items())
    return result if whole else None
