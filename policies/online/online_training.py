# pyright: basic
"""Runs an online method from its start, or from the newest whole checkpoint, to a saved model.

A checkpoint holds all that later steps depend on: every trained network, the optimizer, the
schedule, the trainer's own numbers, the random number generators and the metrics so far. Rollouts,
seeds and orders are functions of the step's number and need not be stored.

A step's rows are durable before its line is in `metrics.jsonl`, which the parent follows. Times are
only in that line and in the log, because rows must be the same on every machine.
"""

import json
import logging
import math
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from safetensors.torch import load_model, save_model
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer

from ...configs.training import OnlineSettings
from ...stores.durable import make_folder, remove
from ...stores.failpoints import reach
from ..trainers.adapters import computing_type
from ..trainers.checkpoints import PREFIX, checkpoint_step, keep, newest_whole
from ..trainers.checks import parameters
from ..trainers.faults import halted_error
from ..trainers.job import TrainingError, TrainJob
from ..trainers.shm_weights import memory_folder
from ..trainers.step_files import write_step
from ..trainers.step_policies import (
    SAVED,
    clear_draft,
    finished_policy,
    lacking,
    published_steps,
    seal_draft,
    seal_policy,
    step_draft,
    step_job,
)
from ..trainers.trained_model import (
    Trained,
    assemble_model,
    copy_tokenizer,
    drop_master,
    require_finite,
)
from ..trainers.trl_trainer import refuse_world
from ..trainers.work_folder import Pace, append_row, final_means
from .environment import Clock, Environment
from .group_methods import GRPOTrainer, OnlineDPOTrainer, RLOOTrainer
from .networks import Networks, SeparateNetworks
from .online_trainer import OnlineTrainer
from .ppo import PPOTrainer
from .quark import QuarkTrainer
from .ranks import Ranks
from .shared_body import SharedBody

logger = logging.getLogger(__name__)

TRAINERS: dict[str, type[OnlineTrainer[Any]]] = {
    kind.name: kind
    for kind in (PPOTrainer, QuarkTrainer, GRPOTrainer, RLOOTrainer, OnlineDPOTrainer)
}

MAIN_WORK = ("weights", "generation", "scoring", "logprobs", "optimisation")
"""The named uses of a step's time; everything else is `other`."""

ROLLOUT_MODEL = "rollout"
"""The folder of the weights that the sampler reads, if memory has too little room for them."""

WRITTEN_BYTES = 2 if torch.cuda.is_available() else 4
"""Bytes of a weight that the sampler reads."""

LONGEST_WAIT = timedelta(days=1)
"""How long processes wait for the first one, which samples; the parent notices one that hangs."""

OPTIMIZER, SCHEDULE, RNG = "optimizer.pt", "scheduler.pt", "rng_state.pth"
STATE = "trainer_state.json"
ARGUMENTS = "job.json"
SHARDED_WEIGHTS, SHARDED_OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0"
"""The folders, within a checkpoint, of the state that every process writes a part of."""


def train_online(job: TrainJob, identity: str) -> Trained:
    """Train by the job's online method and save the policy.

    Raises:
        TrainingError: when the job cannot be trained, or its numbers are not finite any more.
    """
    started = time.monotonic()
    accelerator = make_accelerator(job)
    ranks = Ranks()
    with open_environment(job, ranks) as environment:
        steps = environment.steps
        trainer = TRAINERS[job.method](
            job,
            environment,
            make_networks(job, accelerator.device),
            accelerator,
            steps=environment.learning_steps,
        )
        training = OnlineTraining(job=job, identity=identity, trainer=trainer, steps=steps)
        training.resume()
        loaded = time.monotonic()
        training.make_steps()
        done = time.monotonic()
    training.save_policy()
    if ranks.is_first:
        assemble_steps(job, published_steps(job.settings, steps))
        assemble_model(job, job.folder("saved"))
        reach("trainer.model.saved")
    return Trained(
        steps=steps,
        max_steps=steps,
        rows=len(environment.usable),
        metrics=final_means(training.history),
        seconds={"load": loaded - started, "train": done - loaded},
    )


def make_accelerator(job: TrainJob) -> Accelerator:
    """Join the training's processes.

    Raises:
        TrainingError: of kind `refused`, if their number differs from the job's.
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
def open_environment(job: TrainJob, ranks: Ranks) -> Generator[Environment]:
    """Open the job's environment, and the folder of the weights that it samples from."""
    online, settings = job.online, job.settings
    if online is None or not isinstance(settings, OnlineSettings):
        raise TrainingError("refused", f"{job.method} is not a method that samples while it trains")
    with ExitStack() as stack:
        folder = None
        if ranks.is_first:
            size = parameters(job.model) * WRITTEN_BYTES
            memory = stack.enter_context(memory_folder(job.output, size))
            folder = memory or make_folder(job.folder(ROLLOUT_MODEL))
            copy_tokenizer(job.model, folder)
        environment = Environment(job, online, settings, folder, ranks)
        stack.callback(environment.close)
        yield environment


def make_networks(job: TrainJob, device: torch.device) -> Networks:
    """Load the job's networks: over one body if adapters are trained."""
    valued = TRAINERS[job.method].valued
    if job.fit.sharding != "none" and job.processes > 1:
        return SeparateNetworks(job, device, valued=valued, sharded=True)
    kind = SharedBody if job.fit.adapts else SeparateNetworks
    return kind(job, device, valued=valued)


@dataclass(kw_only=True)
class OnlineTraining:
    """A training's trainer, its progress, and the files that it leaves in the work folder."""

    job: TrainJob
    identity: str
    trainer: OnlineTrainer[Any]
    steps: int
    history: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])

    def __post_init__(self) -> None:
        self.ranks = self.trainer.ranks
        self.environment = self.trainer.environment
        self.published = published_steps(self.job.settings, self.steps)

    def resume(self) -> None:
        """Load the newest whole checkpoint, if there is one."""
        job, found = self.job, None
        if self.ranks.is_first:
            found = newest_whole(job.folder("checkpoints"), self.identity)
            if found and lacking(job, published_steps(job.settings, checkpoint_step(found) + 1)):
                # The policies of earlier steps cannot be made again from the checkpoint.
                found = None
        checkpoint: Path | None = self.ranks.broadcast(found)
        logger.info("resuming from %s" if checkpoint else "starting afresh%s", checkpoint or "")
        if checkpoint:
            self.history = load_state(self.trainer, checkpoint)
        if self.ranks.is_first:
            start = {"event": "start", "resumed_from": len(self.history), "pid": os.getpid()}
            append_row(job.output, start)

    def make_steps(self) -> None:
        """Make all steps that are left, and a checkpoint whenever one is due.

        Raises:
            TrainingError: of kind `halted`, after a request to end the training before its last
                step.
        """
        pace, ranks, history = Pace(self.job.output), self.ranks, self.history
        while len(history) < self.steps:
            try:
                self.make_step()
            except TrainingError as fault:
                # A step that waited for its rewards has not changed the state yet.
                if fault.kind != "halted" or not history:
                    raise
                self.save_checkpoint()
                raise halted_error(self.job) from fault
            turn = ranks.broadcast(pace.turn() if ranks.is_first else None)
            if len(history) < self.steps and turn != "go on":
                self.save_checkpoint()
                pace.restart()
                if turn == "end":
                    raise halted_error(self.job)

    def make_step(self) -> None:
        """Make the next step, write its rows, then report it.

        Raises:
            TrainingError: of kind `diverged`, when one of its numbers is not finite.
        """
        job, environment = self.job, self.environment
        number = len(self.history) + 1
        due = number in self.published
        clock = Clock()
        if number <= environment.learning_steps:
            with clock.measure("weights"):
                environment.refresh(self.trainer.networks)
            rows, metrics = self.trainer.step(number, clock)
        else:
            rows, metrics = self.trainer.outcome(number)
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise TrainingError("diverged", f"{name} was not finite at step {number}")
        self.history.append(metrics)
        if due:
            self.save_step(number)
        if self.ranks.is_first:
            write_step(job.output, number, rows)
            reach("trainer.step.written")
            self.report(clock)

    def report(self, clock: Clock) -> None:
        """Report the last step, with its seconds by use."""
        step, seconds = len(self.history), clock.shares(MAIN_WORK)
        timed = {f"seconds/{name}": value for name, value in seconds.items()}
        metrics = {**self.history[-1], **timed}
        row = {"event": "step", "step": step, "max_steps": self.steps, "metrics": metrics}
        append_row(self.job.output, row)
        times = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
        reward = f"reward {metrics['reward']:.3f}" if "reward" in metrics else "no reward"
        logger.info("step %d of %d: %s; s: %s", step, self.steps, reward, times)

    def save_checkpoint(self) -> None:
        """Save the state after the last step, and seal it."""
        saved = save_state(self.trainer, self.history, self.job)
        if self.ranks.is_first:
            keep(saved, self.identity)

    def save_policy(self) -> None:
        """Save the files from which `assemble_model` makes the published model."""
        networks = self.trainer.networks
        if self.ranks.is_first or networks.is_sharded:
            networks.save(self.job.folder("saved"))

    def save_step(self, step: int) -> None:
        """Save the files from which a step's policy is made, durably."""
        networks, is_first = self.trainer.networks, self.ranks.is_first
        if is_first:
            clear_draft(self.job, step)
        if is_first or networks.is_sharded:
            networks.save(step_draft(self.job, step))
        if is_first:
            seal_draft(self.job, step)
            reach("trainer.step.saved")


def assemble_steps(job: TrainJob, steps: range) -> None:
    """Finish the policies of earlier steps, when nothing else needs the memory any more."""
    for part in (step_job(job, step) for step in steps):
        if finished_policy(part) is None:
            assemble_model(part, part.folder(SAVED))
            drop_master(part)
            require_finite(part.folder("model"))
            seal_policy(part)


# Checkpoints


def save_state(
    trainer: OnlineTrainer[Any], history: Sequence[Mapping[str, float]], job: TrainJob
) -> Path:
    """Write the state after a step into a checkpoint, not yet sealed; return its folder.

    `history` has the metrics of each step so far. The first process writes all that is not sharded.
    """
    folder = job.folder("checkpoints") / f"{PREFIX}{len(history)}"
    networks, ranks = trainer.networks, trainer.ranks
    if ranks.is_first:
        if folder.exists():
            remove(folder)
        make_folder(folder)
        if not networks.is_sharded:
            for name, network in networks.trained.items():
                save_model(network, str(folder / f"{name}.safetensors"))
            torch.save(trainer.optimizer.state_dict(), folder / OPTIMIZER)
        torch.save(trainer.schedule.state_dict(), folder / SCHEDULE)
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        torch.save({"cpu": torch.get_rng_state(), "cuda": cuda}, folder / RNG)
        state = {"numbers": trainer.numbers, "metrics": history}
        (folder / STATE).write_text(json.dumps(state, allow_nan=False))
        (folder / ARGUMENTS).write_bytes(job.folder("job.json").read_bytes())
    if networks.is_sharded:
        ranks.wait()
        weights, moments = get_state_dict(networks.trained, trainer.optimizer)
        state_dict_saver.save(weights, checkpoint_id=folder / SHARDED_WEIGHTS)
        state_dict_saver.save(moments, checkpoint_id=folder / SHARDED_OPTIMIZER)
    ranks.wait()
    return folder


def load_state(trainer: OnlineTrainer[Any], checkpoint: Path) -> list[Mapping[str, float]]:
    """Load the state of a checkpoint whose seal was verified; return the metrics of its steps."""
    trained = trainer.networks.trained
    device = next(trained.parameters()).device
    if trainer.networks.is_sharded:
        _load_sharded(trained, trainer.optimizer, checkpoint)
    else:
        for name, network in trained.items():
            load_model(network, str(checkpoint / f"{name}.safetensors"))
        trainer.optimizer.load_state_dict(_read(checkpoint / OPTIMIZER, device))
    trainer.schedule.load_state_dict(_read(checkpoint / SCHEDULE, device))
    generators = _read(checkpoint / RNG, torch.device("cpu"))
    torch.set_rng_state(generators["cpu"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(generators["cuda"])
    state = json.loads((checkpoint / STATE).read_bytes())
    trainer.numbers.update(state["numbers"])
    return state["metrics"]


def _load_sharded(trained: nn.ModuleDict, optimizer: Optimizer, checkpoint: Path) -> None:
    """Read this process's part of weights and moments."""
    weights, moments = get_state_dict(trained, optimizer)
    state_dict_loader.load(weights, checkpoint_id=checkpoint / SHARDED_WEIGHTS)
    state_dict_loader.load(moments, checkpoint_id=checkpoint / SHARDED_OPTIMIZER)
    set_state_dict(trained, optimizer, model_state_dict=weights, optim_state_dict=moments)


def _read(path: Path, device: torch.device) -> Any:
    return torch.load(path, map_location=device, weights_only=True)
