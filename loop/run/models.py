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
from ...configs.engines import NO_MODEL
from ...configs.load import semantic
from ...configs.recipes import Rewarded
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...policies.engines.canary import prove, read_canary
from ...policies.engines.chat_template import require_template, template_text
from ...policies.engines.engine import Engine, EngineError, Scorer
from ...policies.workers.identity import (
    check_folder,
    endpoint_digest,
    model_digest,
    refuse_quantised,
    scorer_digest,
    served_name,
)
from ...policies.workers.open import engine_kind, open_engine, open_scorer
from ...stores.keys import Json, digest
from .hub_names import folder_of, without_commit
from .model_pool import PoolModel

TINY_MODELS = Path(__file__).parents[1] / "tiny" / "models"
CRITIC, GRADING, QUALITY, REWARD = "critic", "grading", "prompts.quality", "reward"
JUDGES = (QUALITY, GRADING, CRITIC)
"""The roles of which a run has one model each; what the later ones say of an engine counts."""

ASKED = {
    "chat_template_kwargs",
    "think_tags",
    "extra_body",
    "reasoning_effort",
    "reasoning_tokens",
}
"""Settings of an engine that change what it answers, and are left out where they are not set."""

logger = logging.getLogger("lpfloop.models")


def located(model: str, part: str = "policy") -> str:
    """Return the folder or URL that a configured model name means: of a hub name, its cache's."""
    return str(TINY_MODELS / part) if model == "tiny" else folder_of(model)


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
        form = self.engine.model_dump(include=ASKED, mode="json")
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
    reward_id: str | None
    judging: Mapping[str, Served] = field(default_factory=dict[str, Served])
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
        asked: Collection[str],
        roles: Collection[Role] = (),
        completers: Sequence[PoolModel] = (),
    ) -> "Models":
        """Identify the configured models that are asked; nothing is loaded yet.

        `asked` are the names of the roles that the run needs: those of `JUDGES`, and reward.
        `roles` are annotators' models, `completers` those of a pool besides the policy.

        Raises:
            EngineError: for a folder that holds no model, or an endpoint that does not answer.
        """
        reward = None
        if REWARD in asked:
            reward = scorer_digest(located(config.reward.model, "reward"))
        return cls(
            config=config,
            logs=logs,
            initial=_served(config.policy.model, config.policy.engine),
            reward_id=reward,
            judging={name: _judge(config, name) for name in JUDGES if name in asked},
            annotators={role: _annotator(config, role) for role in roles},
            completers={model.name: _completer(model) for model in completers},
        )

    def require_trainable(self) -> None:
        """Refuse a policy here whose weights cannot be trained.

        Raises:
            EngineError: saying why.
        """
        if engine_kind(self.initial.location, self.initial.engine) in ("vllm", "transformers"):
            refuse_quantised(Path(self.initial.location))

    @property
    def template(self) -> str | None:
        """The text of the chat template that the policy is given; None for its own."""
        return template_text(self.config.policy.engine.template)

    @property
    def fingerprint(self) -> Mapping[str, Json]:
        """What of policy, critic and reward model must not change while a run goes on."""
        critic = {CRITIC: self.feedback.params} if CRITIC in self.judging else {}
        reward = {} if self.reward_id is None else {REWARD: self.reward_id}
        return {"policy": self.initial.params, **critic, **reward}

    @property
    def judges(self) -> tuple[Served, ...]:
        """The models besides the policy that are asked for texts."""
        asked = (self.judging, self.annotators, self.completers)
        return tuple(served for models in asked for served in models.values())

    @property
    def feedback(self) -> Served:
        """The critic's model."""
        return self._asked(CRITIC)

    @property
    def grader(self) -> Served:
        """The model that grades completions."""
        return self._asked(GRADING)

    @property
    def reviewer(self) -> Served:
        """The model that judges prompts."""
        return self._asked(QUALITY)

    def _asked(self, role: str) -> Served:
        """Return who plays a role; it is missed only by a recipe whose code hides what it calls."""
        if role not in self.judging:
            raise ConfigError(
                f"this run was opened without a {role}, because the recipe's code names no verb "
                "that asks one: call it by its own name in the recipe's file"
            )
        return self.judging[role]

    def engine(self, served: Served) -> Engine:
        """Return a running engine of `served`; engines that no stage will use again are closed.

        Raises:
            StaleWeightsError: if it does not run the weights that were published.
        """
        name = _name(served)
        if name not in self._engines:
            # What is served elsewhere needs no room here.
            if not is_endpoint(served.location):
                self.make_room()
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
        for role, served in self.judging.items():
            settings[_name(served)] = place_of(config, role)[1]
        for name, engine in self._engines.items():
            engine.configure(settings.get(name, config.policy.engine))

    def make_room(self) -> None:
        """Close what would stand in the way of another model on the same device."""
        self._close_all_but(set() if self.config.exclusive else self._kept())
        if self.config.exclusive:
            self._close_scorer()

    def close(self) -> None:
        """Close every engine."""
        self._close_all_but(set())
        self._close_scorer()

    def _kept(self) -> set[str]:
        """Return the engine that stays open beside another one: the critic's, if there is one."""
        return {_name(self.feedback)} if CRITIC in self.judging else set()

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
    if name is None and engine.besides:
        raise ConfigError(
            f"engine.extra_body and engine.reasoning_effort are for endpoints: {model} runs here"
        )
    if name is None and engine.kind != "scripted":
        check_folder(Path(location))
        require_template(Path(location), engine.template)
    elif engine.template is not None:
        raise EngineError(
            f"engine.template={engine.template}: {model} writes its prompts itself; leave it out"
        )
    return Served(
        name=name or engine.model_name or without_commit(model),
        identity=model_digest(location, engine) if name is None else endpoint_digest(name),
        location=location,
        engine=engine,
    )


def _judge(config: RunConfig, role: str) -> Served:
    """Return the model that plays one of the `JUDGES`."""
    model, engine = place_of(config, role)
    return _served(model, engine)


def place_of(config: RunConfig, role: str) -> tuple[str, EngineConfig]:
    """Return place and engine of one of the `JUDGES`: the critic's, unless it has its own."""
    own = {GRADING: config.grading, QUALITY: config.prompts.quality}.get(role)
    if own is None or own.model is None:
        return config.critic.model, config.critic.engine
    return own.model, own.engine


def _annotator(config: RunConfig, role: Role) -> Served:
    """Return the model that annotators of a role are made of."""
    model = config.annotation.model_of(role)
    return _served(model.model or NO_MODEL, model.engine)


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
