"""Training in a work folder, and publishing the trained model under the hash of its files.

All trainings use this module: policies trained on rows or on their rollouts, and reward models. A
policy's turns are trained as they are sampled, with their thoughts if that is configured.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ...policies.engines.canary import CANARY
from ...policies.trainers.faults import continuation, place
from ...policies.trainers.job import Method, Settings, TrainingError, TrainJob, TurnForm
from ...policies.trainers.launch import (
    left_idle,
    processes_of,
    single_environment,
    training_gpus,
)
from ...policies.trainers.step_files import statistics
from ...policies.trainers.step_policies import publish_step, step_job
from ...policies.trainers.train_model import TrainResult, train
from ...policies.trainers.training_fit import SURVIVAL, TrainingFit, placed_fit
from ...policies.trainers.work_folder import TrainerProgress
from ...stores.durable import make_folder, publish_folder, write_file
from ...stores.failpoints import reach
from ...stores.keys import Json, canonical_json
from ...stores.lake import CANARIES, CHECKPOINTS, remember_canary
from ...stores.records import Statistic
from ...stores.sealed import file_sha256
from ..run.models import Served
from ..run.run import Run
from ..run.stop import Stopped

MAIN_METRICS = {
    "loss": "loss",
    "reward": "reward",
    "kl": "KL",
    "rewards/accuracies": "reward accuracy",
    "rewards/margins": "margin",
    "accuracy": "accuracy",
    "held_out/accuracy": "held-out accuracy",
    "teacher/agreement": "teacher agreement",
    "mean_token_accuracy": "token accuracy",
}
"""The metrics of a training with their names; displays show the first three that there are."""
LITTLE = 0.8
"""A share of an update; if less is kept, lpfloop reports that publishing lost the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """A training of a run whose model is published in the folder `place` of the run.

    `on_answers` is called with a step whose answers the trainer leaves to be judged.
    """

    run: Run
    place: str = CHECKPOINTS
    on_progress: Callable[[TrainerProgress], None] | None = None
    on_answers: Callable[[int], None] | None = None

    def publish(self, job: TrainJob) -> tuple[str, TrainResult]:
        """Train, and publish model and canary; return the model's name and the training's result.

        A job that has ended in its work folder is not trained again.
        """
        # Retried as a whole: a failed fsync may leave a damaged model, which must not be published.
        identity, result = self.run.store.when_there_is_room(lambda: self.train_and_publish(job))
        self._announce(identity, job)
        survival = result.metrics.get(SURVIVAL, 1.0)
        if survival < LITTLE:
            self.run.reporter.note(
                f"rounding to the published weights keeps {survival:.0%} of the training; raise "
                "the learning_rate or set policy.engine.dtype=float16",
                "warning",
                code="W-SURVIVAL",
                survival=survival,
            )
        return identity, result

    def publish_step(self, job: TrainJob, step: int) -> str:
        """Train, and publish the intermediate policy of a step with its canary; return its name."""
        store = self.run.store

        def published() -> str:
            self.train(job)
            return publish_step(job, step, make_folder(store.folder / self.place))

        identity = store.when_there_is_room(published)
        self._announce(identity, step_job(job, step))
        return identity

    def _announce(self, identity: str, job: TrainJob) -> None:
        """Store the canary of a published model, and report both to the store."""
        store = self.run.store
        if store.journal.keeper is not None:
            store.journal.keeper.check_head()
        store.when_there_is_room(lambda: self.publish_canary(identity, job))
        canary = store.folder / CANARIES / identity / CANARY
        checksum = file_sha256(job.folder(CANARY))
        store.when_there_is_room(lambda: remember_canary(store.journal, canary, checksum))
        store.publish(canary)
        store.publish(store.folder / self.place / identity)
        reach("checkpoint.published")

    def train(self, job: TrainJob) -> TrainResult:
        """Train in the work folder, pausing while the run is paused.

        Raises:
            Stopped: if a stop was requested; the training resumes from its last checkpoint.
        """
        stop = self.run.stop
        while True:
            try:
                return self._train(job)
            except Stopped:
                if stop.requested:
                    self.run.reporter.note(
                        f"training was cut off {place(job)}, {stop.shutdown_timeout_s:g} s "
                        f"(shutdown_timeout_s) after the stop; {continuation(job)}"
                    )
                raise
            except TrainingError as end:
                if end.kind != "halted":
                    raise
                self.run.reporter.note(str(end))
            self.run.flow.admit()

    def _train(self, job: TrainJob) -> TrainResult:
        """Train, under the run's patience with trainers that fail or hang."""
        training = self.run.config.training
        trainer = self.run.trainer or train
        copying: AbstractContextManager[int | None] = nullcontext()
        if self.run.store.journal.keeper is not None:
            from ..run.training_copies import copy_checkpoints

            copying = copy_checkpoints(self.run.store, job.output, self.run.stop)
        with copying as step:
            if step is not None:
                self.run.reporter.note(
                    f"the training resumes from the bucket's copy of step {step}"
                )
            return trainer(
                job,
                log=self.run.logs / "train.log",
                on_progress=self.on_progress,
                on_answers=self.on_answers,
                is_to_end=lambda: self.run.stop.halts or self.run.flow.ended,
                checkpoint_minutes=training.checkpoint_minutes,
                retries=training.retries,
                hang_timeout_s=training.hang_timeout_s,
                warm=self.run.warm,
            )

    def train_and_publish(self, job: TrainJob) -> tuple[str, TrainResult]:
        """Train, and publish the model under the hash of its manifest."""
        result = self.train(job)
        reach("checkpoint.trained")
        return publish_folder(result.output, self.run.store.folder / self.place), result

    def publish_canary(self, identity: str, job: TrainJob) -> None:
        """Store the trainer's numbers next to the model, whose name depends only on its weights."""
        folder = make_folder(self.run.store.folder / CANARIES / identity)
        write_file(folder / CANARY, job.folder(CANARY).read_bytes())


def report_training(run: Run, iteration: int, stage: str, method: str, result: TrainResult) -> None:
    """Report how a training ended: its main figures to displays, all of them to the log."""
    shown = [
        f"{label} {result.metrics[name]:.3f}"
        for name, label in MAIN_METRICS.items()
        if name in result.metrics
    ]
    fields = {"iteration": iteration, "stage": stage, "method": method, "steps": result.steps}
    fields |= {"seconds": result.seconds, **result.metrics}
    run.reporter.note(f"{method}: {', '.join(shown[:3])}", "phase", **fields)


def metrics_json(metrics: Mapping[str, float]) -> str:
    """Return a training's metrics as its row stores them, without the ones that are not finite."""
    return canonical_json({name: value for name, value in metrics.items() if math.isfinite(value)})


def training_fit(run: Run, method: Method) -> TrainingFit:
    """Return how a training of the run fits on its devices.

    Recomputation "auto" is decided here, by the memory of this machine.
    """
    fit = placed_fit(run.config)
    if fit.gradient_checkpointing != "auto":
        return fit
    keeps = method in run.models.keeps_activations
    return replace(fit, gradient_checkpointing="never" if keeps else "always")


def warm_trainer(run: Run) -> None:
    """Start a trainer process for the iteration's training, if one process here will do it.

    A scripted policy is for tests and rehearsals, which seldom train a model.
    """
    training, policy = run.config.training, run.config.policy
    single = training.processes in (1, "auto") and len(training_gpus(training)) <= 1
    if run.trainer is not None or policy.engine.kind == "scripted":
        return
    if single and training.nodes == 1:
        run.warm.start(single_environment(training), run.logs / "train.log")


def training_processes(run: Run, settings: Settings) -> int:
    """Return the number of processes of a training of the run; log GPUs that stay idle."""
    training, gpus = run.config.training, len(training_gpus(run.config.training))
    idle = left_idle(training, settings, gpus)
    if idle:
        run.reporter.note(idle, "warning", code="W-IDLE-GPU")
    return processes_of(training, settings, gpus)


def step_statistics(iteration: int, method: str, result: TrainResult) -> list[Statistic]:
    """Return the numbers of all steps of a training as rows, the last with its update survival."""
    history = [dict(numbers) for numbers in result.history]
    if history and SURVIVAL in result.metrics:
        history[-1][SURVIVAL] = result.metrics[SURVIVAL]
    return [
        row
        for numbers in history
        for row in statistics(
            iteration,
            method,
            int(numbers["step"]),
            {name: value for name, value in numbers.items() if name != "step"},
        )
    ]


def turn_form(run: Run, policy: Served, thoughts: Path | None = None) -> TurnForm:
    """Return how the turns of a policy are rendered to train it."""
    return TurnForm(
        values=policy.engine.chat_template_kwargs,
        tags=policy.engine.think_tags,
        thought=run.config.training.thought,
        thoughts=thoughts,
    )


def thought_params(run: Run) -> dict[str, Json]:
    """Return the setting of thoughts if it can change a checkpoint."""
    thought = run.config.training.thought
    return {} if thought == "none" else {"thought": thought}
