"""Methods that sample while they train: their steps as units of a stage, then the checkpoint.

PPO and Quark learn from a reward model. GRPO, RLOO and online DPO learn from groups of answers to a
prompt, whose reward is a weighted sum of critic, verifier and reward model; critic and verifier
judge in the middle of a step (`step_judges`).

The trainer runs once for all steps, in a separate process that writes each step's rows to its work
folder; here a step is committed as soon as the trainer reports it. A killed trainer resumes from
its last checkpoint and repeats the steps after it. If sums are reproducible, as on the CPU, the
repeated steps are identical; otherwise a committed step keeps its first rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...configs.load import semantic
from ...configs.methods import SteppedTraining
from ...configs.own_function import names_function
from ...configs.recipes import Grouped, Rewarded, RewardWeights
from ...configs.schema import ConfigError
from ...configs.training import OnlineSettings
from ...policies.trainers.job import BY_REWARD, Method, OnlineJob, RewardSource, TrainJob
from ...policies.trainers.step_files import planned_steps
from ...policies.trainers.step_policies import published_steps
from ...policies.trainers.training_fit import fit_params, policy_fit
from ...stores.failpoints import reach
from ...stores.journal_reader import Cost
from ...stores.keys import Json, derive_seed, digest
from ...stores.lake import CHECKPOINTS
from ...stores.records import Checkpoint, Prompt, RewardModel
from ..run.handles import Prompts
from ..run.iteration import Iteration
from ..run.models import is_endpoint, locate_model
from ..run.reporter import UnitStats
from ..run.run import Verb, Work
from ..run.stage import Stage
from ..run.stop import NothingToTrainOn
from .online_steps import Steps, step_cost
from .publish import (
    Publishing,
    metrics_json,
    report_training,
    training_fit,
    training_processes,
    turn_form,
)
from .reward import References, Scoring, references, reward
from .sample import sample
from .step_alarms import StepWatch, keep_alarms, numbers_of
from .step_judges import StepJudges
from .supervised_set import Supervision, supervision
from .train import TRAIN
from .training_files import prompts_file

VERBS: Mapping[Method, Verb] = {
    "ppo": Verb("ppo", semantics=2),
    "quark": Verb("quark", semantics=2),
    "grpo": Verb("grpo"),
    "rloo": Verb("rloo"),
    "online_dpo": Verb("online_dpo"),
}
PUBLISH = Verb("publish_step")
ON_THE_WAY = "train:steps"
"""The stage of the policies that a training publishes on its way."""


def train_ppo(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Checkpoint:
    """M_t: the policy after PPO on these prompts against a reward model, a step a unit."""
    return _by_model(it, "ppo", prompts, model)


def train_quark(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Checkpoint:
    """M_t: the policy after Quark on these prompts by a reward model, a step a unit."""
    return _by_model(it, "quark", prompts, model)


def train_grpo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after GRPO on groups of answers to these prompts, a step a unit."""
    return _by_groups(it, "grpo", prompts, rewards)


def train_rloo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after REINFORCE against the mean of the other answers, a step a unit."""
    return _by_groups(it, "rloo", prompts, rewards)


def train_online_dpo(it: Iteration, prompts: Prompts, rewards: RewardWeights) -> Checkpoint:
    """M_t: the policy after DPO on pairs of answers sampled during training, a step a unit."""
    return _by_groups(it, "online_dpo", prompts, rewards)


def _by_model(
    it: Iteration, method: Method, prompts: Prompts, model: RewardModel | None
) -> Checkpoint:
    """Train the policy online, after committing its references and its supervised set."""
    it.require(Rewarded, f"train_{method}")
    training = OnlineTraining(it=it, method=method, prompts=prompts, reward=model)
    training.require_trainable()
    found = None
    if training.settings.reference_reward:
        # r(x, y_ref), y_ref ~ M_0(x): the references of relative rewards.
        first = replace(it, policy=it.run.models.initial)
        answers = sample(first, prompts, n=1, label="sample:reference")
        found = references(it, answers, reward(it, answers, by=model))
    return replace(training, references=found, supervision=supervision(it)).train()


def _by_groups(
    it: Iteration, method: Method, prompts: Prompts, rewards: RewardWeights
) -> Checkpoint:
    """Train the policy on groups; if the verifier has a weight, on prompts that it can verify."""
    it.require(Grouped, f"train_{method}")
    usable = it.verifiable(prompts) if rewards.verifier else prompts
    every, kept = (sum(map(len, of.chunks)) for of in (prompts, usable))
    if kept < every:
        it.run.reporter.note(
            f"{every - kept:,} of {every:,} prompts are left out: recipe.rewards.verifier counts, "
            "and the verifier cannot judge answers to them",
            "warning",
            code="W-LEFT-OUT",
            iteration=it.number,
            left_out=every - kept,
        )
    judges = StepJudges(it=it, rewards=rewards)
    training = OnlineTraining(it=it, method=method, prompts=usable, judges=judges)
    training.require_trainable()
    return replace(training, supervision=supervision(it)).train()


def whole_settings(settings: OnlineSettings) -> OnlineSettings:
    """Return the settings that a method's steps depend on: not which policies are published."""
    fields = SteppedTraining.model_fields
    return settings.model_copy(update={name: field.default for name, field in fields.items()})


@dataclass(frozen=True, kw_only=True)
class OnlineTraining:
    """A training of the policy on its samples for `prompts`, by the reward of `reward`.

    With `references` rewards are relative to theirs, and prompts without one are skipped. With
    `judges` a sample's reward is the weighted sum of their scores, which may include `reward`.
    """

    it: Iteration
    method: Method
    prompts: Prompts
    reward: RewardModel | None = None
    references: References | None = None
    supervision: Supervision | None = None
    judges: StepJudges | None = None

    @property
    def settings(self) -> OnlineSettings:
        """The method's settings."""
        settings: OnlineSettings = getattr(self.it.run.config.training, self.method)
        return settings

    @property
    def weights(self) -> Mapping[RewardSource, float]:
        """The weight of each source of a sample's reward."""
        return BY_REWARD if self.judges is None else self.judges.weights

    @property
    def _scoring(self) -> Scoring:
        """The reward model that rewards the samples, or has a part in it."""
        return Scoring(run=self.it.run, iteration=self.it.number, model=self.reward)

    @cached_property
    def _sampled_prompts(self) -> list[Prompt]:
        """The prompts that are sampled, without the cuts between their chunks."""
        every = [prompt for chunk in self.prompts.chunks for prompt in chunk]
        if self.references is None:
            return every
        return [prompt for prompt in every if prompt.prompt_id in self.references.rewards]

    @property
    def _count(self) -> int:
        return planned_steps(len(self._sampled_prompts), self.settings)

    def require_trainable(self) -> None:
        """Raise an error if this training is impossible.

        Raises:
            ConfigError: without a reward model.
            NothingToTrainOn: without prompts, or without the policy's weights.
        """
        it = self.it
        if "reward" in self.weights and self._scoring.reward_id is None:
            raise ConfigError(f"{self.method} needs a reward model: set reward.model")
        if not self._sampled_prompts:
            raise NothingToTrainOn(
                f"iteration {it.number} lacks prompts for {self.method}; raise prompts.parts"
            )
        if is_endpoint(it.policy.location):
            raise NothingToTrainOn(
                f"the policy is served at {it.policy.location}, so its weights cannot be "
                f"trained here by {self.method}; give their folder with --policy"
            )

    def train(self) -> Checkpoint:
        """Train the policy online, step by step, and publish it."""
        it, run = self.it, self.it.run
        run.flow.settle()
        # The sampler, reward model and judges run next to the trainer, on any free device.
        places = run.places.of_training("auto")
        if self.judges is not None:
            places |= self.judges.where
        steps = run.run_stage(it.number, self.method, self._steps(), self._run_steps, places=places)
        keys = steps.keys(run.store.journal)
        keep_alarms(it, self.method, steps)
        published = published_steps(self.settings, self._count)
        if published:
            work = Work(
                verb=PUBLISH,
                params={"method": self.method},
                upstream=(steps.identity,),
                reads=lambda: [keys[:step] for step in published],
            )

            def publish_on_the_way(stage: Stage) -> None:
                for unit in stage.units():
                    run.models.make_room()
                    step = published[unit.chunk]
                    identity = Publishing(run=run).publish_step(self.job(steps.identity), step)
                    row = self._checkpoint(identity, step, numbers_of(it, keys[step - 1]), step)
                    stage.commit(unit, {Checkpoint: [row]}, UnitStats(rows=1))

            run.run_stage(it.number, ON_THE_WAY, work, publish_on_the_way, places=places)
        chosen = {} if self.settings.choose == "last" else {"choose": self.settings.choose}
        work = Work(
            verb=TRAIN,
            params={"method": self.method, **chosen},
            upstream=(steps.identity,),
            reads=lambda: [keys],
        )

        def publish(stage: Stage) -> None:
            # Not `Run.make`: its progress counts steps, not the one row.
            for unit in stage.units():
                run.models.make_room()
                identity, result = Publishing(run=run).publish(self.job(steps.identity))
                last = result.steps if chosen else None
                row = self._checkpoint(identity, result.steps, result.metrics, last)
                stage.commit(unit, {Checkpoint: [row]}, UnitStats(rows=result.steps))
                report_training(run, it.number, "train", self.method, result)

        planned = run.run_stage(it.number, "train", work, publish, places=places)
        reach("checkpoint.committed")
        run.decide_by(planned)
        (checkpoint,) = run.store.rows(Checkpoint, planned.key(run.store.journal, 0))
        return checkpoint

    def _steps(self) -> Work:
        """Return the work of the steps: a unit each, all of them known beforehand."""
        it = self.it
        params: Json = {
            "policy": it.policy.params,
            "reference": it.run.models.initial.identity,
            "reward": self._rewarding,
            "settings": semantic(whole_settings(self.settings)),
            "sampling": semantic(it.run.config.policy.sampling),
            **fit_params(policy_fit(it.run.config)),
        }
        content = (digest([key for (key,) in self.prompts.each_key()]),)
        if self.references is not None:
            content = (*content, self.references.key)
        work = Work(
            verb=VERBS[self.method],
            params=params,
            upstream=content,
            reads=lambda: [(*content, str(step)) for step in range(1, self._count + 1)],
        )
        return work if self.supervision is None else self.supervision.add_to(work)

    @property
    def _rewarding(self) -> Json:
        """Every input of a sample's reward except the sample."""
        if self.judges is None:
            return self._scoring.identity
        scored = {"reward": self._scoring.identity} if "reward" in self.weights else {}
        weights: dict[str, Json] = dict(self.weights.items())
        return {"weights": weights, **self.judges.params, **scored}

    def _run_steps(self, stage: Stage) -> None:
        """Run the trainer for all steps; commit each, in the end also unreported ones."""
        run, judges, settings = self.it.run, self.judges, self.settings
        run.models.make_room()
        job = self.job(stage.planned.identity)
        steps = Steps(
            run=run,
            stage=stage,
            work=job.output,
            most=step_cost(run, settings),
            judging=Cost()
            if judges is None
            else judges.most(self._sampled_prompts, settings.rollouts),
            judges=judges,
            watch=self._watch(stage),
        )
        steps.admit()
        on_answers = None if judges is None else steps.judge_step
        publishing = Publishing(run=run, on_progress=steps.commit_steps, on_answers=on_answers)
        run.store.when_there_is_room(lambda: publishing.train(job))
        steps.settle(stage.planned.chunks)

    def _watch(self, stage: Stage) -> StepWatch | None:
        """Return the watch over each step, which knows the steps committed before."""
        it, planned = self.it, stage.planned
        if not it.run.config.alarms.watch:
            return None
        watch = StepWatch(it=it, method=self.method, steps=planned.chunks)
        pending = {unit.chunk for unit in stage.pending}
        done = range(min(pending, default=planned.chunks))
        watch.watch_committed(planned.key(it.run.store.journal, chunk) for chunk in done)
        return watch

    def job(self, identity: str) -> TrainJob:
        """Return the training, every model that it reads verified; `identity` is its steps'."""
        it, config = self.it, self.it.run.config
        initial, store = it.run.models.initial, it.run.store
        same = initial.identity == it.policy.identity
        it.run.verify(it.policy)
        work = store.folder / "work" / identity
        rewards = None if self.references is None else self.references.rewards
        prompts = store.when_there_is_room(
            lambda: prompts_file(work, self._sampled_prompts, rewards)
        )
        place = config.reward.model
        configured = self.reward is None and "reward" in self.weights
        function = place if configured and names_function(place) else None
        folder = None if self.reward is None else it.run.reward_folder(self.reward)
        if configured and function is None:
            folder = Path(locate_model(place, "reward"))
        return TrainJob(
            method=self.method,
            model=Path(it.policy.location),
            reference=None if same else Path(initial.location),
            data=(prompts,),
            output=work,
            settings=self.settings,
            seed=derive_seed(config.seed, "train", identity) % 2**32,
            processes=training_processes(it.run, self.settings),
            fit=training_fit(it.run, self.method),
            reward=folder,
            supervised=None if self.supervision is None else self.supervision.as_job(work),
            template=it.run.models.template,
            online=OnlineJob(
                iteration=it.number,
                identity=identity,
                root_seed=config.seed,
                policy=it.policy.identity,
                model=config.policy.model,
                reward_id=self._scoring.reward_id or "",
                sampling=config.policy.sampling,
                engine=config.policy.engine,
                reward=config.reward,
                function=function,
                weights=self.weights,
            ),
            turns=turn_form(it.run, it.policy),
        )

    def _checkpoint(
        self, identity: str, steps: int, metrics: Mapping[str, float], at_step: int | None
    ) -> Checkpoint:
        """Return the row of a published policy."""
        return Checkpoint(
            checkpoint_id=identity,
            parent_id=self.it.parent.checkpoint_id,
            reference_id=self.it.run.models.initial.identity,
            iteration=self.it.number,
            recipe=self.it.run.config.recipe.name,
            path=f"{CHECKPOINTS}/{identity}",
            steps=steps,
            metrics=metrics_json(metrics),
            at_step=at_step,
        )
