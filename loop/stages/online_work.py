"""A training of the policy on its own samples, as work: its units' keys, its job, its rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...configs.group_methods import OnlineSettings
from ...configs.load import semantic
from ...configs.methods import SteppedTraining
from ...configs.own_function import names_function
from ...configs.schema import ConfigError
from ...policies.trainers.job import BY_REWARD, Method, OnlineJob, RewardSource, TrainJob
from ...policies.trainers.step_files import planned_steps
from ...policies.trainers.step_policies import published_steps
from ...policies.trainers.training_fit import fit_params, policy_fit
from ...stores.keys import Json, derive_seed, digest
from ...stores.lake import CHECKPOINTS
from ...stores.records import Checkpoint, Prompt, RewardModel
from ..run.handles import Planned, Prompts
from ..run.iteration import Iteration
from ..run.models import is_endpoint, locate_model
from ..run.outcomes import NothingToTrainOn
from ..run.run import Verb, Work
from .online_steps import prompts_file
from .publish import metrics_json, training_fit, training_processes
from .reference_reward import References
from .reward import Scoring
from .step_judges import StepJudges
from .supervised_set import Supervision
from .thoughts import turn_form
from .train import TRAIN

VERBS: Mapping[Method, Verb] = {
    "ppo": Verb("ppo", semantics=2),
    "quark": Verb("quark", semantics=2),
    "grpo": Verb("grpo"),
    "rloo": Verb("rloo"),
    "online_dpo": Verb("online_dpo"),
}
PUBLISH = Verb("publish_step")


def whole_settings(settings: OnlineSettings) -> OnlineSettings:
    """Return the settings that a method's steps depend on: not which policies are published."""
    fields = SteppedTraining.model_fields
    return settings.model_copy(update={name: field.default for name, field in fields.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineTraining:
    """A training of the policy on its samples for `prompts`, by the reward of `reward`.

    With `references` rewards are relative to theirs, and prompts without one are skipped. With
    `judges` a sample's reward is the weighted sum of their scores, which may include `reward`.
    """

    it: Iteration
    method: Method
    prompts: Prompts
    reward: RewardModel | None
    references: References | None = None
    supervision: Supervision | None = None
    judges: StepJudges | None = None

    @property
    def settings(self) -> OnlineSettings:
        """The method's settings."""
        settings: OnlineSettings = getattr(self.it.run.config.training, self.method)
        return settings

    @property
    def scoring(self) -> Scoring:
        """The reward model that rewards the samples, or has a part in it."""
        return Scoring(run=self.it.run, iteration=self.it.number, model=self.reward)

    @property
    def weights(self) -> Mapping[RewardSource, float]:
        """The weight of each source of a sample's reward."""
        return BY_REWARD if self.judges is None else self.judges.weights

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
            "reward": self._rewarding,
            "settings": semantic(whole_settings(self.settings)),
            "sampling": semantic(it.run.config.policy.sampling),
            **fit_params(policy_fit(it.run.config)),
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
        return work if self.supervision is None else self.supervision.add_to(work)

    @property
    def published(self) -> range:
        """The steps after which an intermediate policy is published."""
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
        """Return the work of intermediate policies: a unit each, which reads the steps so far."""
        keys = steps.keys(self.it.run.store.journal)
        return Work(
            verb=PUBLISH,
            params={"method": self.method},
            upstream=(steps.identity,),
            reads=lambda: [keys[:step] for step in self.published],
        )

    def require_trainable(self) -> None:
        """Raise an error if this training is impossible.

        Raises:
            ConfigError: without a reward model.
            NothingToTrainOn: without prompts, or without the policy's weights.
        """
        it = self.it
        if "reward" in self.weights and self.scoring.reward_id is None:
            raise ConfigError(f"{self.method} needs a reward model: set reward.model")
        if not self.asked:
            raise NothingToTrainOn(
                f"iteration {it.number} lacks prompts for {self.method}; raise prompts.parts"
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
            fit=training_fit(it.run, self.method),
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
                weights=self.weights,
            ),
            turns=turn_form(it.run, it.policy),
        )

    def checkpoint(
        self, identity: str, steps: int, metrics: Mapping[str, float], at_step: int | None = None
    ) -> Checkpoint:
        """Return the row of a published policy."""
        it = self.it
        return Checkpoint(
            checkpoint_id=identity,
            parent_id=it.parent.checkpoint_id,
            reference_id=it.run.models.initial.identity,
            iteration=it.number,
            recipe=it.run.config.recipe.name,
            path=f"{CHECKPOINTS}/{identity}",
            steps=steps,
            metrics=metrics_json(metrics),
            at_step=at_step,
        )

    @property
    def _rewarding(self) -> Json:
        """Every input of a sample's reward except the sample."""
        if self.judges is None:
            return self.scoring.identity
        scored = {"reward": self.scoring.identity} if "reward" in self.weights else {}
        weights: dict[str, Json] = dict(self.weights.items())
        return {"weights": weights, **self.judges.params, **scored}

    def _reward_folder(self) -> Path | None:
        run = self.it.run
        if self.reward is not None:
            return run.reward_folder(self.reward)
        if self._function is not None or "reward" not in self.weights:
            return None
        return Path(locate_model(run.config.reward.model, "reward"))

    @property
    def _function(self) -> str | None:
        """The place of the user's own reward function, if that rewards the samples."""
        place = self.it.run.config.reward.model
        named = self.reward is None and "reward" in self.weights and names_function(place)
        return place if named else None
