# pyright: basic
"""Runs an online method from its start, or from the newest whole checkpoint, to a saved model.

A step's rows are durable before its line is in `metrics.jsonl`, which is what the parent follows.
Times are only in that line and in the log: rows must be the same on every machine.
"""

import logging
import math
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from ...configs.methods import PPOTraining, QuarkTraining
from ...stores.durable import make_folder
from ...stores.failpoints import reach
from ..trainers.step_files import planned_steps, write_step
from ..trainers.trained_model import Trained, assemble_model, copy_tokenizer
from ..trainers.trainer_checkpoints import keep, newest_whole
from ..trainers.trainer_faults import TrainingError, halted
from ..trainers.trainer_job import TrainJob
from ..trainers.trainer_orders import Pace
from ..trainers.trainer_steps import append_row
from .environment import Clock, Environment
from .ppo_trainer import PPOTrainer
from .quantile_tokens import with_tokens
from .quark_trainer import QuarkTrainer
from .state import History, OnlineMethod, load_state, save_state

logger = logging.getLogger(__name__)

TAIL = 10
"""The last steps, whose mean a result reports."""

MAIN_WORK = ("generation", "scoring", "logprobs", "optimisation")
"""The named uses of a step's time; everything else is `other`."""

ROLLOUT_MODEL = "rollout"
"""The folder of the weights that the sampler reads."""


def train_online(job: TrainJob, identity: str) -> Trained:
    """Train by the job's online method and save the policy.

    Raises:
        TrainingError: when the job cannot be trained, or its numbers are no longer finite.
    """
    online, settings = job.online, job.settings
    if online is None or not isinstance(settings, PPOTraining | QuarkTraining):
        raise TrainingError("refused", f"{job.method} is not a method that samples while it trains")
    if job.processes != 1:
        message = f"{job.method} samples and trains in one process: set training.processes to 1"
        raise TrainingError("refused", message)
    started = time.monotonic()
    job = with_tokens(job)
    on_gpu = torch.cuda.is_available()
    accelerator = Accelerator(cpu=not on_gpu, mixed_precision="bf16" if on_gpu else "no")
    copy_tokenizer(job.model, make_folder(job.folder(ROLLOUT_MODEL)))
    environment = Environment(job, online, settings, job.folder(ROLLOUT_MODEL))
    try:
        steps = planned_steps(environment.prompts, settings)
        method = make_method(job, environment, accelerator, steps)
        checkpoint = newest_whole(job.folder("checkpoints"), identity)
        logger.info("resuming from %s" if checkpoint else "starting afresh%s", checkpoint or "")
        history = load_state(method, checkpoint) if checkpoint else History()
        start = {"event": "start", "resumed_from": history.step, "pid": os.getpid()}
        append_row(job.output, start)
        loaded = time.monotonic()
        pace = Pace(job.output)
        while history.step < steps:
            make_step(job, method, environment, history, steps)
            turn = pace.turn()
            if history.step < steps and turn != "go on":
                job_json = job.folder("job.json").read_bytes()
                keep(save_state(method, history, job.folder("checkpoints"), job_json), identity)
                pace.saved()
                if turn == "end":
                    raise halted(job)
        done = time.monotonic()
    finally:
        environment.close()
    if not publishes_before(job):
        method.policy.save_pretrained(job.folder("saved"))
    assemble_model(job, job.folder("saved"))
    reach("trainer.model.saved")
    return Trained(
        steps=steps,
        max_steps=steps,
        rows=environment.prompts,
        metrics=final_means(history),
        seconds={"load": loaded - started, "train": done - loaded},
    )


def make_method(
    job: TrainJob, environment: Environment, accelerator: Accelerator, steps: int
) -> OnlineMethod:
    """Build the job's method, planned for `steps` steps."""
    if job.method == "quark":
        return QuarkTrainer(job, environment, accelerator, steps)
    return PPOTrainer(job, environment, accelerator, steps)


def make_step(
    job: TrainJob,
    method: OnlineMethod,
    environment: Environment,
    history: History,
    steps: int,
) -> None:
    """Make the next step, write its rows, then report it.

    Raises:
        TrainingError: of kind `diverged`, when one of its numbers is not finite.
    """
    number = history.step + 1
    if number == steps and publishes_before(job):
        method.policy.save_pretrained(job.folder("saved"))
    clock = Clock()
    save_for_sampling(method.policy, environment.folder)
    environment.refresh()
    outcome = method.step(number, clock)
    for name, value in outcome.metrics.items():
        if not math.isfinite(value):
            raise TrainingError("diverged", f"{name} was not finite at step {number}")
    write_step(job.output, number, outcome.rows)
    reach("trainer.step.written")
    history.step = number
    history.metrics.append(outcome.metrics)
    seconds = clock.shares(MAIN_WORK)
    timed = {f"seconds/{name}": value for name, value in seconds.items()}
    metrics = {**outcome.metrics, **timed}
    row = {"event": "step", "step": number, "max_steps": steps, "metrics": metrics}
    append_row(job.output, row)
    told = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
    logger.info("step %d of %d: reward %.3f; s: %s", number, steps, metrics["reward"], told)


def publishes_before(job: TrainJob) -> bool:
    """Return whether to publish the model from before the last step, as AlpacaFarm's code does."""
    return isinstance(job.settings, PPOTraining) and job.settings.publish_before_last_step


def save_for_sampling(policy: Any, folder: Path) -> None:
    """Save the policy's weights where the sampler reads them, in the type in which it computes."""
    state = None
    if policy.device.type == "cuda":
        state = {name: value.to(torch.bfloat16) for name, value in policy.state_dict().items()}
    policy.save_pretrained(folder, state_dict=state)


def final_means(history: History) -> dict[str, float]:
    """Return the last steps' metrics, averaged."""
    tail = history.metrics[-TAIL:]
    names = sorted(set.intersection(*(set(metrics) for metrics in tail)))
    return {name: statistics.fmean(metrics[name] for metrics in tail) for name in names}
