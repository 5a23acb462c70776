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
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

from ...configs.group_methods import OnlineSettings
from ...configs.methods import PPOTraining
from ...stores.failpoints import reach
from ..trainers.adapters import computing_type
from ..trainers.checkpoints import checkpoint_step, keep, newest_whole
from ..trainers.checks import parameters
from ..trainers.faults import halted
from ..trainers.job import TrainingError, TrainJob
from ..trainers.shm_weights import memory_folder
from ..trainers.step_files import LEFT_OUT, StepRows, write_step
from ..trainers.step_files import statistics as statistic_rows
from ..trainers.step_policies import (
    SAVED,
    finished_policy,
    lacking,
    new_draft,
    published_steps,
    seal_draft,
    seal_policy,
    step_draft,
    step_job,
)
from ..trainers.trained_model import (
    Trained,
    assemble_model,
    drop_master,
    require_finite,
)
from ..trainers.trl_trainer import refuse_world
from ..trainers.work_folder import Pace, append_row
from .divided_networks import DividedNetworks
from .environment import Clock, Environment
from .grpo_trainer import GRPOTrainer
from .networks import Networks, SeparateNetworks
from .online_dpo_trainer import OnlineDPOTrainer
from .ppo_trainer import PPOTrainer
from .quantile_tokens import with_tokens
from .quark_trainer import QuarkTrainer
from .ranks import Ranks
from .rloo_trainer import RLOOTrainer
from .rollout_weights import RolloutWeights
from .shared_body import SharedBody
from .state import History, OnlineMethod, StepOutcome, load_state, save_state

logger = logging.getLogger(__name__)

TAIL = 10
"""The last steps, whose mean a result reports."""

EVERY = (PPOTrainer, QuarkTrainer, GRPOTrainer, RLOOTrainer, OnlineDPOTrainer)
TRAINERS = {kind.name: kind for kind in EVERY}
"""What makes the steps of each method."""

MAIN_WORK = ("weights", "generation", "scoring", "logprobs", "optimisation")
"""The named uses of a step's time; everything else is `other`."""

ROLLOUT_MODEL = "rollout"
"""The folder of the weights that the sampler reads, where memory has no room for them."""

WRITTEN_BYTES = 2 if torch.cuda.is_available() else 4
"""Bytes of a weight that the sampler reads."""

LONGEST_WAIT = timedelta(days=1)
"""Of a process for the others, while the first one samples; the parent notices one that hangs."""


def train_online(job: TrainJob, identity: str) -> Trained:
    """Train by the job's online method and save the policy.

    Raises:
        TrainingError: when the job cannot be trained, or its numbers are no longer finite.
    """
    started = time.monotonic()
    accelerator = make_accelerator(job)
    ranks = Ranks()
    job = ranks.told(with_tokens(job) if ranks.is_first else None)
    with opened(job, ranks) as environment:
        steps = environment.steps
        method = make_method(job, environment, accelerator, environment.learning_steps)
        history = resumed(job, identity, method, ranks)
        loaded = time.monotonic()
        make_steps(job, identity, method, environment, history, steps)
        done = time.monotonic()
    if not publishes_before(job):
        save_policy(job, method.networks, ranks)
    if ranks.is_first:
        assemble_steps(job, published_steps(job.settings, steps))
        assemble_model(job, job.folder("saved"))
        reach("trainer.model.saved")
    return Trained(
        steps=steps,
        max_steps=steps,
        rows=len(environment.asked),
        metrics=final_means(history),
        seconds={"load": loaded - started, "train": done - loaded},
    )


def make_accelerator(job: TrainJob) -> Accelerator:
    """Join the training's processes.

    Raises:
        TrainingError: of kind `refused`, if they are not as many as the job says.
    """
    narrow = computing_type(job) == torch.bfloat16
    patience = InitProcessGroupKwargs(timeout=LONGEST_WAIT)
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),
        mixed_precision="bf16" if narrow else "no",
        kwargs_handlers=[patience],
    )
    refuse_world(job, accelerator.num_processes)
    return accelerator


@contextmanager
def opened(job: TrainJob, ranks: Ranks) -> Generator[Environment]:
    """Open what the job's method acts on, and the folder of the weights that it samples from."""
    online, settings = job.online, job.settings
    if online is None or not isinstance(settings, OnlineSettings):
        raise TrainingError("refused", f"{job.method} is not a method that samples while it trains")
    with ExitStack() as stack:
        weights = None
        if ranks.is_first:
            size = parameters(job.model) * WRITTEN_BYTES
            memory = stack.enter_context(memory_folder(job.output, size))
            weights = RolloutWeights(job, memory or job.folder(ROLLOUT_MODEL))
        environment = Environment(job, online, settings, weights, ranks)
        stack.callback(environment.close)
        yield environment


def make_networks(job: TrainJob, device: torch.device) -> Networks:
    """Load the job's networks: over one body where adapters are trained."""
    if job.fit.sharding != "none" and job.processes > 1:
        return DividedNetworks(job, valued=job.method == "ppo")
    kind = SharedBody if job.fit.adapts else SeparateNetworks
    return kind(job, device, valued=job.method == "ppo")


def make_method(
    job: TrainJob, environment: Environment, accelerator: Accelerator, steps: int
) -> OnlineMethod:
    """Build the job's method, planned for `steps` steps."""
    networks = make_networks(job, accelerator.device)
    return TRAINERS[job.method](job, environment, networks, accelerator, steps=steps)


def resumed(job: TrainJob, identity: str, method: OnlineMethod, ranks: Ranks) -> History:
    """Load the newest whole checkpoint, if there is one; return its progress."""
    found = newest_whole(job.folder("checkpoints"), identity) if ranks.is_first else None
    if found is not None and lacking(
        job, published_steps(job.settings, checkpoint_step(found) + 1)
    ):
        # What lies behind it cannot be made again from it.
        found = None
    checkpoint: Path | None = ranks.told(found)
    logger.info("resuming from %s" if checkpoint else "starting afresh%s", checkpoint or "")
    history = load_state(method, checkpoint) if checkpoint else History()
    if ranks.is_first:
        start = {"event": "start", "resumed_from": history.step, "pid": os.getpid()}
        append_row(job.output, start)
    return history


def make_steps(
    job: TrainJob,
    identity: str,
    method: OnlineMethod,
    environment: Environment,
    history: History,
    steps: int,
) -> None:
    """Make all steps that are left, and a checkpoint whenever one is due.

    Raises:
        TrainingError: of kind `halted`, when the training was asked to end before its last step.
    """
    pace, ranks = Pace(job.output), environment.ranks
    while history.step < steps:
        try:
            make_step(job, method, environment, history, steps)
        except TrainingError as fault:
            # A step that waited for its rewards has changed nothing yet.
            if fault.kind != "halted" or not history.step:
                raise
            save_checkpoint(job, identity, method, history, ranks)
            raise halted(job) from fault
        turn = ranks.told(pace.turn() if ranks.is_first else None)
        if history.step < steps and turn != "go on":
            save_checkpoint(job, identity, method, history, ranks)
            pace.saved()
            if turn == "end":
                raise halted(job)


def save_checkpoint(
    job: TrainJob, identity: str, method: OnlineMethod, history: History, ranks: Ranks
) -> None:
    """Save the state after the last step that was made, and seal it."""
    job_json = job.folder("job.json").read_bytes()
    saved = save_state(method, history, job.folder("checkpoints"), job_json, ranks)
    if ranks.is_first:
        keep(saved, identity)


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
    number, ranks = history.step + 1, environment.ranks
    due, before = number in published_steps(job.settings, steps), publishes_before(job)
    if number == environment.learning_steps and before:
        save_policy(job, method.networks, ranks)
    if due and before:
        save_step(job, number, method.networks, ranks)
    clock = Clock()
    if number <= environment.learning_steps:
        with clock.spent_on("weights"):
            environment.refresh(method.networks)
        outcome = method.step(number, clock)
    else:
        outcome = empty_step(job)
    outcome = with_left_out(job, number, outcome, environment)
    for name, value in outcome.metrics.items():
        if not math.isfinite(value):
            raise TrainingError("diverged", f"{name} was not finite at step {number}")
    history.step = number
    history.metrics.append(outcome.metrics)
    if due and not before:
        save_step(job, number, method.networks, ranks)
    if ranks.is_first:
        write_step(job.output, number, outcome.rows)
        reach("trainer.step.written")
        tell(job, history, steps, clock)


def empty_step(job: TrainJob) -> StepOutcome:
    """Return a step that was planned for prompts that do not fit: it learns nothing."""
    pairs = [] if job.method == OnlineDPOTrainer.name else None
    rows = StepRows(candidates=[], rewards=[], rollouts=[], statistics=[], pairs=pairs)
    return StepOutcome(rows=rows, metrics={})


def with_left_out(
    job: TrainJob, number: int, outcome: StepOutcome, environment: Environment
) -> StepOutcome:
    """Return a step that counts the prompts that do not fit, if there are any."""
    if not environment.left_out:
        return outcome
    told = {LEFT_OUT: float(environment.left_out)}
    counted = statistic_rows(environment.online.iteration, job.method, number, told)
    rows = replace(outcome.rows, statistics=[*outcome.rows.statistics, *counted])
    return StepOutcome(rows=rows, metrics={**outcome.metrics, **told})


def save_policy(job: TrainJob, networks: Networks, ranks: Ranks) -> None:
    """Save what `assemble_model` makes the published model of."""
    if ranks.is_first or networks.is_divided:
        networks.save(job.folder("saved"))


def save_step(job: TrainJob, step: int, networks: Networks, ranks: Ranks) -> None:
    """Save what the policy of a step is made of, durably."""
    draft = new_draft(job, step) if ranks.is_first else step_draft(job, step)
    if ranks.is_first or networks.is_divided:
        networks.save(draft)
    if ranks.is_first:
        seal_draft(job, step)
        reach("trainer.step.saved")


def assemble_steps(job: TrainJob, steps: range) -> None:
    """Finish the policies of the steps on the way, of which nothing reads the weights any more."""
    for part in (step_job(job, step) for step in steps):
        if finished_policy(part) is None:
            assemble_model(part, part.folder(SAVED))
            drop_master(part)
            require_finite(part.folder("model"))
            seal_policy(part)


def tell(job: TrainJob, history: History, steps: int, clock: Clock) -> None:
    """Report a step, with its seconds by use."""
    seconds = clock.shares(MAIN_WORK)
    timed = {f"seconds/{name}": value for name, value in seconds.items()}
    metrics = {**history.metrics[-1], **timed}
    row = {"event": "step", "step": history.step, "max_steps": steps, "metrics": metrics}
    append_row(job.output, row)
    told = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
    reward = f"reward {metrics['reward']:.3f}" if "reward" in metrics else "no reward"
    logger.info("step %d of %d: %s; s: %s", history.step, steps, reward, told)


def publishes_before(job: TrainJob) -> bool:
    """Return whether to publish the model from before the last step, as AlpacaFarm's code does."""
    return isinstance(job.settings, PPOTraining) and job.settings.publish_before_last_step


def final_means(history: History) -> dict[str, float]:
    """Return the last steps' metrics, each averaged over the steps that have it."""
    tail = history.metrics[-TAIL:]
    names = sorted({name for metrics in tail for name in metrics})
    return {name: statistics.fmean(m[name] for m in tail if name in m) for name in names}
