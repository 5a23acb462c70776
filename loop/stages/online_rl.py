"""Methods that sample while they train: their steps as units of a stage, then the checkpoint.

The trainer runs once for all steps, in a process of its own that leaves each step's rows in its
work folder; here a step is committed as soon as it is told of. A trainer that was killed goes on
from its last checkpoint and makes the steps behind it again: the same ones where sums are
reproducible, as on the CPU; elsewhere a step that was committed keeps its first rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...configs.load import semantic
from ...configs.methods import PPOTraining, QuarkTraining, SteppedTraining
from ...configs.own_function import names_function
from ...configs.recipes import Quark, Rewarded
from ...configs.schema import ConfigError
from ...policies.trainers.step_files import planned_steps
from ...policies.trainers.step_policies import published_steps
from ...policies.trainers.train_model import TrainJob, TrainResult
from ...policies.trainers.trainer_job import OnlineJob
from ...policies.trainers.training_fit import fit_params
from ...stores.failpoints import reach
from ...stores.keys import Json, canonical_json, derive_seed, digest
from ...stores.lake import CHECKPOINTS
from ...stores.records import Checkpoint, Prompt, RewardModel
from ..run.handles import Planned, Prompts
from ..run.iteration import Iteration
from ..run.models import is_endpoint, located
from ..run.needs import Asks, Needs
from ..run.outcomes import NothingToTrainOn
from ..run.reporter import Advance
from ..run.run import Verb, Work
from ..run.stage import Stage
from .online_steps import Steps, prompts_file, step_cost
from .publish import Publishing, training_fit, training_processes
from .reference_reward import References, references
from .reward import Scoring, reward
from .sample import sample
from .step_alarms import StepWatch, keep_alarms, numbers_of
from .supervised_set import Supervision, supervision
from .thoughts import turn_form
from .train import TRAIN

Method = Literal["ppo", "quark"]
UNRULED = "missing_eos"
"""Quark's setting that says nothing where it is none: cut samples are then like others."""
VERBS: Mapping[Method, Verb] = {
    "ppo": Verb("ppo", semantics=2),
    "quark": Verb("quark", semantics=2),
}
PUBLISH = Verb("publish_step")
ON_THE_WAY = "train:steps"
"""The stage of the policies that a training publishes on its way."""
SHOWN = ("reward", "kl", "loss")


def settings_params(settings: PPOTraining | QuarkTraining) -> dict[str, Json]:
    """Return what of a method's settings can change its steps."""
    told = semantic(settings)
    unruled = isinstance(settings, QuarkTraining) and settings.missing_eos == "none"
    return {name: value for name, value in told.items() if not (unruled and name == UNRULED)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineTraining:
    """A training of the policy on its own samples of `prompts`, by the reward of `reward`.

    With `references` rewards are relative to theirs, and prompts without one are left out.
    """

    it: Iteration
    method: Method
    prompts: Prompts
    reward: RewardModel | None
    references: References | None = None
    supervision: Supervision | None = None

    @property
    def settings(self) -> PPOTraining | QuarkTraining:
        """The method's settings."""
        training = self.it.run.config.training
        return training.ppo if self.method == "ppo" else training.quark

    @property
    def scoring(self) -> Scoring:
        """Who rewards the samples."""
        return Scoring(run=self.it.run, iteration=self.it.number, model=self.reward)

    @property
    def asked(self) -> list[Prompt]:
        """The prompts that are sampled, without the cuts between their chunks."""
        every = [prompt for chunk in self.prompts.chunks for prompt in chunk]
        if self.references is None:
            return every
        return [prompt for prompt in every if prompt.prompt_id in self.references.rewards]

    def steps(self) -> Work:
        """Return the work of the steps: a unit each, all of them known beforehand."""
        it = self.it
        params: Json = {
            "policy": it.policy.params,
            "reference": it.run.models.initial.identity,
            "reward": self.scoring.identity,
            "settings": settings_params(whole_settings(self.settings)),
            "sampling": semantic(it.run.config.policy.sampling),
            **fit_params(training_fit(it.run)),
        }
        content = (digest([key for (key,) in self.prompts.each_key()]),)
        if self.references is not None:
            content = (*content, self.references.key)
        count = planned_steps(len(self.asked), self.settings)
        work = Work(
            verb=VERBS[self.method],
            params=params,
            upstream=content,
            reads=lambda: [(*content, str(step)) for step in range(1, count + 1)],
        )
        return work if self.supervision is None else self.supervision.read_by(work)

    @property
    def published(self) -> range:
        """The steps after which a policy is published on the way."""
        return published_steps(self.settings, planned_steps(len(self.asked), self.settings))

    def publication(self, steps: Planned) -> Work:
        """Return the work of the last policy, whose one unit reads all steps."""
        chosen = {} if self.settings.choose == "last" else {"choose": self.settings.choose}
        return Work(
            verb=TRAIN,
            params={"method": self.method, **chosen},
            upstream=(steps.identity,),
            reads=lambda: [steps.keys(self.it.run.store.journal)],
        )

    def publications(self, steps: Planned) -> Work:
        """Return the work of the policies on the way: a unit each, which reads the steps so far."""
        keys = steps.keys(self.it.run.store.journal)
        return Work(
            verb=PUBLISH,
            params={"method": self.method},
            upstream=(steps.identity,),
            reads=lambda: [keys[:step] for step in self.published],
        )

    def require_trainable(self) -> None:
        """Stop if this training makes no sense.

        Raises:
            ConfigError: if there is no reward model, or nothing is drawn at random.
            NothingToTrainOn: without prompts, or without the policy's weights.
        """
        it = self.it
        if self.scoring.reward_id is None:
            raise ConfigError(f"reward.model is none: {self.method} needs a reward model")
        if it.run.config.policy.sampling.temperature == 0:
            raise ConfigError(
                f"policy.sampling.temperature is 0: {self.method} learns from answers that are "
                "drawn at random; set it above 0"
            )
        if not self.asked:
            raise NothingToTrainOn(
                f"iteration {it.number} has no prompts for {self.method}; raise prompts.parts"
            )
        if is_endpoint(it.policy.location):
            raise NothingToTrainOn(
                f"the policy is served at {it.policy.location}, so its weights cannot be "
                f"trained here by {self.method}; give their folder with --policy"
            )

    def job(self, identity: str) -> TrainJob:
        """Return the training, every model that it reads verified; `identity` is its steps'."""
        it, config = self.it, self.it.run.config
        initial = it.run.models.initial
        same = initial.identity == it.policy.identity
        it.run.verify(it.policy)
        store, work = it.run.store, it.run.store.folder / "work" / identity
        rewards = None if self.references is None else self.references.rewards
        prompts = store.when_there_is_room(lambda: prompts_file(work, self.asked, rewards))
        return TrainJob(
            method=self.method,
            model=Path(it.policy.location),
            reference=None if same else Path(initial.location),
            data=(prompts,),
            output=work,
            settings=self.settings,
            seed=derive_seed(config.seed, "train", identity) % 2**32,
            processes=training_processes(it.run, self.settings),
            fit=training_fit(it.run),
            reward=self._reward_folder(),
            supervised=None if self.supervision is None else self.supervision.as_job(work),
            template=it.run.models.template,
            online=OnlineJob(
                iteration=it.number,
                identity=identity,
                root_seed=config.seed,
                policy=it.policy.identity,
                model=config.policy.model,
                reward_id=self.scoring.reward_id or "",
                sampling=config.policy.sampling,
                engine=config.policy.engine,
                reward=config.reward,
                function=self._function,
            ),
            turns=turn_form(it.run, it.policy),
        )

    def checkpoint(
        self, identity: str, steps: int, metrics: Mapping[str, float], at_step: int | None = None
    ) -> Checkpoint:
        """Return the row of a published policy."""
        it = self.it
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return Checkpoint(
            checkpoint_id=identity,
            parent_id=it.parent.checkpoint_id,
            reference_id=it.run.models.initial.identity,
            iteration=it.number,
            recipe=it.run.config.recipe.name,
            path=f"{CHECKPOINTS}/{identity}",
            steps=steps,
            metrics=canonical_json(finite),
            at_step=at_step,
        )

    def _reward_folder(self) -> Path | None:
        run = self.it.run
        if self.reward is not None:
            return run.reward_folder(self.reward)
        if self._function is not None:
            return None
        return Path(located(run.config.reward.model, "reward"))

    @property
    def _function(self) -> str | None:
        """The place of the user's own reward function, if that rewards the samples."""
        place = self.it.run.config.reward.model
        return place if self.reward is None and names_function(place) else None


def train_ppo(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Checkpoint:
    """M_t: the policy after PPO on these prompts against a reward model, a step a unit."""
    return _optimise(it, "ppo", prompts, model)


def train_quark(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Checkpoint:
    """M_t: the policy after Quark on these prompts by a reward model, a step a unit."""
    return _optimise(it, "quark", prompts, model)


def _optimise(
    it: Iteration, method: Method, prompts: Prompts, model: RewardModel | None
) -> Checkpoint:
    """Train the policy online; before that, commit what it reads besides prompts and reward."""
    training = OnlineTraining(it=it, method=method, prompts=prompts, reward=model)
    training.require_trainable()
    relative = training.settings.reference_reward
    found = _references(it, prompts, model) if relative else None
    return _trained(replace(training, references=found, supervision=supervision(it)))


def _references(it: Iteration, prompts: Prompts, model: RewardModel | None) -> References:
    """r(x, y_ref), y_ref ~ M_0(x): what rewards are relative to."""
    first = replace(it, policy=it.run.models.initial)
    answers = sample(first, prompts, n=1, label="sample:reference")
    return references(it, answers, reward(it, answers, by=model))


def _trained(training: OnlineTraining) -> Checkpoint:
    """Train the policy online, step by step, and publish it."""
    it, run = training.it, training.it.run
    run.flow.settle()
    # Its sampler and its reward model run beside the trainer, wherever there is room.
    places = run.places.of_training("auto")
    steps = run.pay(
        it.number,
        training.method,
        training.steps(),
        lambda stage: _pay_steps(training, stage),
        places=places,
    )

    keep_alarms(it, training.method, steps)
    if training.published:
        run.pay(
            it.number,
            ON_THE_WAY,
            training.publications(steps),
            lambda stage: _publish_steps(training, steps, stage),
            places=places,
        )

    def publish(stage: Stage) -> None:
        # Not `Run.make`: what is counted are the steps, not the one row.
        for unit in stage.units():
            run.models.make_room()
            job = training.job(steps.identity)
            identity, result = Publishing(run=run).publish(job)
            last = None if training.settings.choose == "last" else result.steps
            row = training.checkpoint(identity, result.steps, result.metrics, last)
            stage.commit(unit, {Checkpoint: [row]}, Advance(rows=result.steps))
            run.reporter.note(_summary(training.method, result))

    planned = run.pay(it.number, "train", training.publication(steps), publish, places=places)
    reach("checkpoint.committed")
    (checkpoint,) = run.store.rows(Checkpoint, planned.key(run.store.journal, 0))
    return checkpoint


def _watch(training: OnlineTraining, stage: Stage) -> StepWatch | None:
    """Return what looks at each step, and knows those that were committed before.

    Raises:
        AlarmStopError: if one of them raised an alarm that stops the run.
    """
    it, planned = training.it, stage.planned
    if not it.run.config.alarms.watch:
        return None
    watch = StepWatch(it=it, method=training.method, steps=planned.chunks)
    journal, owed = it.run.store.journal, {unit.chunk for unit in stage.owed}
    for chunk in range(min(owed, default=planned.chunks)):
        watch.raised_by(numbers_of(it, planned.key(journal, chunk)))
    watch.require_going_on()
    return watch


def _publish_steps(training: OnlineTraining, steps: Planned, stage: Stage) -> None:
    """Commit the policies that the training published on its way, each with its step's numbers."""
    run = training.it.run
    for unit in stage.units():
        run.models.make_room()
        step = training.published[unit.chunk]
        identity = Publishing(run=run).publish_step(training.job(steps.identity), step)
        metrics = numbers_of(training.it, steps.key(run.store.journal, step - 1))
        row = training.checkpoint(identity, step, metrics, step)
        stage.commit(unit, {Checkpoint: [row]}, Advance(rows=1))


def whole_settings(settings: PPOTraining | QuarkTraining) -> PPOTraining | QuarkTraining:
    """Return the settings that a method's steps depend on: not which policies are published."""
    fields = SteppedTraining.model_fields
    return settings.model_copy(update={name: field.default for name, field in fields.items()})


def _pay_steps(training: OnlineTraining, stage: Stage) -> None:
    """Let the trainer make all steps; commit each, and in the end what nobody told of any more."""
    run = training.it.run
    run.models.make_room()
    job = training.job(stage.planned.identity)
    most = step_cost(run, training.settings)
    watch = _watch(training, stage)
    steps = Steps(run=run, stage=stage, work=job.output, most=most, watch=watch)
    steps.admit()
    publishing = Publishing(run=run, on_progress=steps.told)
    run.store.when_there_is_room(lambda: publishing.train(job))
    steps.settle(stage.planned.chunks)


def _summary(method: str, result: TrainResult) -> str:
    numbers = ", ".join(f"{n} {result.metrics[n]:.3f}" for n in SHOWN if n in result.metrics)
    return f"trained by {method}: {result.steps} steps in {result.seconds:.0f} s; {numbers}"


ASKS: Asks = {train_ppo: ("weights", "reward"), train_quark: ("weights", "reward")}
NEEDS: Needs = {train_ppo: (Rewarded,), train_quark: (Quark,)}
