"""The models of a run, each in a process of its own that is started when it is first needed.

The policy's engine is replaced when the checkpoint changes: a new process on the new weights cannot
 hold anything of the old ones. Policy and critic share one engine while they are the same
weights under the same settings, as M_0 and the feedback model are in the first iteration. So do
annotators and the models of a pool, whose engine gives way to the next one as the policy's does.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...configs.annotation import Role
from ...configs.load import semantic
from ...configs.recipes import Rewarded
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...policies.engines.canary import prove, read_canary
from ...policies.engines.engine import Engine, EngineError, Scorer
from ...policies.workers.identity import (
    endpoint_digest,
    model_digest,
    scorer_digest,
    served_name,
)
from ...policies.workers.open import engine_kind, open_engine, open_scorer
from ...stores.keys import Json, digest
from .model_pool import PoolModel

TINY_MODELS = Path(__file__).parents[1] / "tiny" / "models"
NO_MODEL = "none"

logger = logging.getLogger("lpfloop.models")


def located(model: str, part: str = "policy") -> str:
    """Return the folder or URL that a configured model name means."""
    return str(TINY_MODELS / part) if model == "tiny" else model


def is_endpoint(model: str) -> bool:
    """Whether the model is served elsewhere, so that its weights are not at hand."""
    return model.startswith(("http://", "https://"))


def is_rewarded(config: RunConfig) -> bool:
    """Whether a reward model is configured for a recipe that would train one of its own else."""
    return isinstance(config.recipe, Rewarded) and config.reward.model != NO_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model and how it is run; equal values can share one engine.

    `name` is what it is called where it is priced and noted: as its endpoint serves it, else as it
    is configured.
    `canary` is where the trainer left the numbers by which an engine proves that it runs these
    weights; None for weights that were not trained here. `control` stands before what the user says
    when this is sampled: the condition under which it learned to answer well.
    """

    name: str
    identity: str
    location: str
    engine: EngineConfig
    canary: Path | None = None
    control: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether an endpoint serves it, which may ask for money."""
        return engine_kind(self.location, self.engine) == "openai"

    @property
    def params(self) -> Json:
        """What of this can change a completion."""
        control = {"control": self.control} if self.control else {}
        form = self.engine.model_dump(include={"chat_template_kwargs", "think_tags"}, mode="json")
        vllm: Json = semantic(self.engine.vllm)
        return {
            **control,
            **form,
            **({"vllm": vllm} if vllm else {}),
            "model": self.identity,
            "kind": engine_kind(self.location, self.engine),
            "dtype": self.engine.dtype,
            "max_model_len": self.engine.max_model_len,
            "script": self.engine.script,
        }


@dataclass(kw_only=True)
class Models:
    """Opens engines on demand, keeps those still of use, closes them all at the end."""

    config: RunConfig
    logs: Path
    initial: Served
    feedback: Served
    grader: Served
    reviewer: Served
    reward_id: str | None
    annotators: Mapping[Role, Served] = field(default_factory=dict[Role, Served])
    completers: Mapping[str, Served] = field(default_factory=dict[str, Served])
    _engines: dict[str, Engine] = field(default_factory=dict[str, Engine], init=False)
    _scorer: Scorer | None = field(default=None, init=False)
    _scorer_of: str | None = field(default=None, init=False)

    @classmethod
    def of(
        cls,
        config: RunConfig,
        logs: Path,
        *,
        roles: Collection[Role] = (),
        completers: Sequence[PoolModel] = (),
        grading: bool = False,
    ) -> "Models":
        """Identify the configured models; nothing is loaded yet.

        `roles` are annotators' models, `completers` those of a pool besides the policy; `grading`
        says whether the run grades.

        Raises:
            EngineError: for a folder that holds no model, or an endpoint that does not answer.
            ConfigError: if a role has no model.
        """
        reward = None
        if config.reward.model != NO_MODEL:
            reward = scorer_digest(located(config.reward.model, "reward"))
        feedback = _served(config.critic.model, config.critic.engine)
        return cls(
            config=config,
            logs=logs,
            initial=_served(config.policy.model, config.policy.engine),
            feedback=feedback,
            grader=_grader(config) if grading else feedback,
            reviewer=_reviewer(config) or feedback,
            reward_id=reward,
            annotators={role: _annotator(config, role) for role in roles},
            completers={model.name: _completer(model) for model in completers},
        )

    @property
    def fingerprint(self) -> Mapping[str, Json]:
        """What of the models that every run has must not change while it goes on."""
        initial, feedback = self.initial.params, self.feedback.params
        return {"policy": initial, "critic": feedback, "reward": self.reward_id}

    @property
    def judges(self) -> tuple[Served, ...]:
        """The models besides the policy that are asked for texts."""
        own = (self.feedback, self.grader, self.reviewer)
        return (*own, *self.annotators.values(), *self.completers.values())

    def engine(self, served: Served) -> Engine:
        """Return a running engine of `served`; engines that no stage will use again are closed.

        Raises:
            StaleWeightsError: if it does not run the weights that were published.
        """
        name = _name(served)
        if name not in self._engines:
            self._close_all_but({_name(self.feedback)})
            if self.config.exclusive:
                self._close_all_but(set())
                self._close_scorer()
            log = self.logs / f"engine-{name[:12]}.log"
            self._engines[name] = _proved(
                open_engine(served.location, served.engine, log=log), served
            )
        return self._engines[name]

    def scorer(self, folder: Path | None = None) -> Scorer:
        """Return the running reward model: the one in `folder`, or the configured one."""
        wanted = str(folder or located(self.config.reward.model, "reward"))
        if self._scorer is not None and self._scorer_of != wanted:
            self._close_scorer()
        if self._scorer is None:
            if self.config.exclusive:
                self._close_all_but(set())
            self._scorer = open_scorer(
                wanted,
                self.config.reward,
                log=self.logs / "reward.log",
                identity=None if folder else self.reward_id,
            )
            self._scorer_of = wanted
        return self._scorer

    def configure(self, config: RunConfig) -> None:
        """Take over live settings of the engines, from their next request on."""
        self.config = config
        settings = {_name(served): served.engine for served in self.completers.values()}
        settings[_name(self.initial)] = config.policy.engine
        for role, served in self.annotators.items():
            settings[_name(served)] = config.annotation.model_of(role).engine
        if config.grading.model is not None:
            settings[_name(self.grader)] = config.grading.engine
        if config.prompts.quality.model is not None:
            settings[_name(self.reviewer)] = config.prompts.quality.engine
        settings[_name(self.feedback)] = config.critic.engine
        for name, engine in self._engines.items():
            engine.configure(settings.get(name, config.policy.engine))

    def make_room(self) -> None:
        """Close what would stand in the way of training on the same device."""
        self._close_all_but(set() if self.config.exclusive else {_name(self.feedback)})
        if self.config.exclusive:
            self._close_scorer()

    def close(self) -> None:
        """Close every engine."""
        self._close_all_but(set())
        self._close_scorer()

    def _close_all_but(self, kept: set[str]) -> None:
        for name in [name for name in self._engines if name not in kept]:
            self._engines.pop(name).close()

    def _close_scorer(self) -> None:
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None


def _served(model: str, engine: EngineConfig) -> Served:
    location = located(model)
    name = served_name(location, engine)
    return Served(
        name=name or engine.model_name or model,
        identity=model_digest(location, engine) if name is None else endpoint_digest(name),
        location=location,
        engine=engine,
    )


def _grader(config: RunConfig) -> Served:
    """Return the model that grades: the critic's, unless there is another."""
    if config.grading.model is None:
        return _served(config.critic.model, config.critic.engine)
    return _served(config.grading.model, config.grading.engine)


def _annotator(config: RunConfig, role: Role) -> Served:
    """Return the model that annotators of a role are made of."""
    model = config.annotation.model_of(role)
    if model.model is None:
        raise ConfigError(
            f"annotation.{role}.model is not set, and annotators of the pool "
            f"{config.annotation.pool} need it: give a folder or an OpenAI-compatible URL"
        )
    return _served(model.model, model.engine)


def _reviewer(config: RunConfig) -> Served | None:
    """Return the model that judges prompts, if a run has one besides the critic's."""
    quality = config.prompts.quality
    if quality.model is None or quality.judge == "none":
        return None
    return _served(quality.model, quality.engine)


def _completer(pooled: PoolModel) -> Served:
    """Return a model of a pool, which must say where it is."""
    if pooled.model is None:
        raise ConfigError(f"the pool does not say where the model {pooled.name} is")
    try:
        return _served(pooled.model, pooled.engine)
    except EngineError as error:
        raise EngineError(f"the model {pooled.name} of the pool: {error}") from error


def _proved(engine: Engine, served: Served) -> Engine:
    """Return the engine if it runs the weights that the trainer measured; else close it."""
    if served.canary is None:
        return engine
    rows = read_canary(served.canary)
    if not rows:
        logger.warning("%s has no canary: nothing but its hash proves the weights", served.location)
    try:
        prove(engine, rows)
    except EngineError:
        engine.close()
        raise
    return engine


def _name(served: Served) -> str:
    return digest({"params": served.params, "engine": semantic(served.engine)})
