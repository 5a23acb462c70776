"""The models of a run, each in a separate process that starts when the model is first needed.

When the checkpoint changes, the running engine of the previous policy loads the new weights and the
canary verifies them. A new process is needed if the architecture differs, the canary does not
agree, or the previous policy is M_0 and also a judge; that process starts ahead of time if there is
room for it, as the reward model's does. Policy and critic share one engine while they have the same
weights and settings, as M_0 and the feedback model do in the first iteration. So do annotators and
the models of a pool. `loaded_models.turn` decides which model gives way on the devices.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ...configs.annotation import Role
from ...configs.engines import NO_MODEL
from ...configs.own_function import names_function
from ...configs.recipes import Annotated, Pooled, Rewarded, TaskReward
from ...configs.schema import CompletionConfig, ConfigError, EngineConfig, RewardConfig, RunConfig
from ...policies.engines.canary import read_canary
from ...policies.engines.chat_template import require_chat, template_text
from ...policies.engines.engine import Engine, EngineError, Scorer
from ...policies.workers.engine_factory import engine_kind, open_engine, open_scorer
from ...policies.workers.hosted_model import HostedModel
from ...policies.workers.identity import (
    refuse_quantised,
    scorer_digest,
)
from ...stores.keys import Json
from .device_inventory import DeviceInventory, in_turns
from .loaded_models import Allocation, LoadedModels
from .served import (
    TINY_MODELS,
    Served,
    identify_model,
    is_endpoint,
    is_like,
    locate_model,
    named_start,
    run_alike,
)

POLICY, CRITIC, REWARD = "policy", "critic", "reward"
GRADING, QUALITY, SCORING_JUDGE = "grading", "prompts.quality", "assessment.judge"
ANNOTATION, COMPLETION = "annotation", "completion"
"""The first words of the roles annotation.strong (medium, weak) and completion:NAME."""
NEXT = "next-"
"""Put before the name of the engine that waits for M_1."""

__all__ = ["NO_MODEL", "TINY_MODELS", "Models", "Served", "is_endpoint", "locate_model"]

logger = logging.getLogger("lpfloop.models")


def is_rewarded(config: RunConfig) -> bool:
    """Whether a reward model is configured for a recipe that otherwise trains one."""
    return isinstance(config.recipe, Rewarded) and config.reward.model != NO_MODEL


def compares(config: RunConfig) -> bool:
    """Whether a run's recipe learns from comparisons, by people or by annotators."""
    recipe = config.recipe
    unweighed = isinstance(recipe, TaskReward) and not recipe.weights.preferred
    return isinstance(recipe, Annotated) and not (unweighed or is_rewarded(config))


def annotates(config: RunConfig) -> bool:
    """Whether a run's recipe learns from comparisons by the annotators of a pool."""
    return compares(config) and not config.annotation.source


def grades(config: RunConfig) -> bool:
    """Whether a run's recipe has completions graded."""
    return isinstance(config.recipe, Pooled) and not is_rewarded(config)


def completes(config: RunConfig) -> bool:
    """Whether a run's recipe uses a pool of models: to have answers graded, or compared.

    Without a named pool, the policy's own samples are compared.
    """
    named = config.completion.pool != CompletionConfig().pool
    return grades(config) or (annotates(config) and named)


@dataclass(kw_only=True)
class Models:
    """Opens models on demand, keeps them while they are needed, and closes them at the end.

    `judging` are the models other than the policy that generate texts, by role.
    `reward_start` is the initial model of a reward model's training; None for M_0.
    `training_bytes` is the most memory that the run's trainings need on a device, and
    `keeps_activations` are the methods that fit there without recomputing activations.

    `_lock` and `_lock_elsewhere` are held while a model loads. `_changing` guards `config`,
    `_policies` and `_allocations` against a change of settings, and is held only briefly.
    """

    config: RunConfig
    logs: Path
    initial: Served
    reward_id: str | None
    reward_start: Served | None = None
    judging: Mapping[str, Served] = field(default_factory=dict[str, Served])
    training_bytes: int = 0
    keeps_activations: Collection[str] = ()
    inventory: DeviceInventory = field(default_factory=DeviceInventory.here)
    _loaded: LoadedModels = field(init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _lock_elsewhere: threading.RLock = field(default_factory=threading.RLock, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _policies: dict[str, Served] = field(default_factory=dict[str, Served], init=False)
    _allocations: dict[str, Allocation] = field(default_factory=dict[str, Allocation], init=False)

    def __post_init__(self) -> None:
        self._loaded = LoadedModels(free_ram=self.inventory.free_ram)

    @classmethod
    def of(
        cls,
        config: RunConfig,
        logs: Path,
        needed: Mapping[str, tuple[str, EngineConfig | None]],
        *,
        training_bytes: int = 0,
        keeps_activations: Collection[str] = (),
    ) -> "Models":
        """Identify the configured models that the run needs; nothing is loaded yet.

        `needed` are place and engine of each role; a reward model has no engine.

        Raises:
            EngineError: for a folder that holds no model, or an endpoint that does not answer.
        """
        # Of two roles on one engine, the later one's settings count: the critic's.
        judging = {
            role: _identify(role, model, engine)
            for role, (model, engine) in reversed([*needed.items()])
            if engine is not None and role != POLICY
        }
        return cls(
            config=config,
            logs=logs,
            initial=identify_model(config.policy.model, config.policy.engine),
            reward_id=_reward_id(config) if REWARD in needed else None,
            reward_start=named_start(config.training.reward),
            judging=judging,
            training_bytes=training_bytes,
            keeps_activations=keeps_activations,
        )

    def require_trainable(self) -> None:
        """Refuse a local policy whose weights cannot be trained.

        Raises:
            EngineError: with the reason.
        """
        if _runs_here(self.initial):
            refuse_quantised(Path(self.initial.location))

    @property
    def template(self) -> str | None:
        """The text of the chat template configured for the policy; None for the model's."""
        return template_text(self.config.policy.engine.template)

    @property
    def fingerprint(self) -> Mapping[str, Json]:
        """The parts of policy, critic and reward model that must not change while a run goes on."""
        critic = {CRITIC: self.feedback.params} if CRITIC in self.judging else {}
        reward = {} if self.reward_id is None else {REWARD: self.reward_id}
        return {"policy": self.initial.params, **critic, **reward}

    @property
    def annotators(self) -> Mapping[str, Served]:
        """The annotators' models: strong, medium, weak."""
        return self._roles_of(f"{ANNOTATION}.")

    @property
    def completers(self) -> Mapping[str, Served]:
        """The models of a pool except the policy, by name."""
        return self._roles_of(f"{COMPLETION}:")

    def _roles_of(self, prefix: str) -> Mapping[str, Served]:
        found = {n: served for n, served in self.judging.items() if n.startswith(prefix)}
        return {name.removeprefix(prefix): served for name, served in sorted(found.items())}

    @property
    def feedback(self) -> Served:
        """The critic's model."""
        return self.judge(CRITIC)

    def judge(self, role: str) -> Served:
        """Return the model in a role; it is missing if the rehearsal did not use the role."""
        if role not in self.judging:
            raise ConfigError(
                f"the recipe calls a {role}, and did not call it in its rehearsal: start another "
                "run that names one"
            )
        return self.judging[role]

    def engine(self, served: Served) -> Engine:
        """Return a loaded and awake engine of `served` with the published weights.

        Raises:
            StaleWeightsError: if it does not run the published weights.
        """
        name = served.engine_name
        # A model without devices waits for no other.
        with self._lock if _runs_here(served) else self._lock_elsewhere:
            engine = served.engine
            allocation = self._allocation(
                name, engine, lambda: self.inventory.engine(name, served.location, engine)
            )
            is_new = name not in self._loaded
            if is_new:
                self._hand_over(served, allocation)
            opened = self._loaded.bring(allocation, lambda: self._open(name, served))
            if served.canary is not None or served == self.initial:
                with self._changing:
                    self._policies[name] = served
            if served == self.initial and _runs_here(served):
                ahead = self._load_reward_model if is_new else self._load_next_engine
                ahead()
        return opened

    def scorer(self, folder: Path | None = None) -> Scorer:
        """Return the reward model, loaded and awake: the one in `folder`, or the configured one."""
        with self._lock:
            allocation, open_model = self._scorer_in(folder)
            name = allocation.name
            # Each training makes a new one, and the previous one is not used again.
            for other in [n for n, _ in self._loaded.items() if n.startswith(REWARD) and n != name]:
                self._loaded.close(other)
            return self._loaded.bring(allocation, open_model)

    def configure(self, config: RunConfig) -> None:
        """Apply live settings of the models, from their next request on."""
        with self._changing:
            before, self.config = self.config, config
            # The allocations are computed again under the new settings.
            self._allocations.clear()
            policies = list(self._policies.items())
        settings = {served.engine_name: served.engine for served in self.completers.values()}
        for name, policy in policies:
            own = run_alike(policy.engine, before.policy.engine)
            if not own and run_alike(policy.engine, before.critic.engine):
                # A policy that judges, under the critic's settings.
                settings[name] = config.critic.engine
        settings[self.initial.engine_name] = config.policy.engine
        for role, served in self.judging.items():
            if not role.startswith(COMPLETION):
                settings[served.engine_name] = place_of(config, role)[1]
        for name, model in self._loaded.items():
            if name.startswith(REWARD) and isinstance(model, HostedModel):
                cast("HostedModel[RewardConfig]", model).configure(config.reward)
            elif isinstance(model, Engine):
                model.configure(settings.get(name, config.policy.engine))

    def make_room(self) -> None:
        """Put to sleep or close the models that occupy the room for a training."""
        training = self.inventory.training(self.config.training.devices, self.training_bytes)
        with self._lock:
            self._loaded.make_room(training)

    def close(self) -> None:
        """Close every model, also while another thread waits for one of them."""
        self._loaded.close_all()

    def _allocation(
        self, name: str, part: EngineConfig | RewardConfig, found: Callable[[], Allocation]
    ) -> Allocation:
        """Return a model's allocation, computed once, because it reads the headers of its files."""
        with self._changing:
            known, config = self._allocations.get(name), self.config
        if known is not None:
            return known
        allocation = in_turns(found(), part, config)
        with self._changing:
            # The settings may have changed meanwhile, and the allocation with them.
            if self.config is config:
                self._allocations[name] = allocation
        return allocation

    def _open(self, name: str, served: Served) -> Engine:
        log = self.logs / f"engine-{name[:12]}.log"
        opened = open_engine(served.location, served.engine, log=log)
        _prove_weights(opened, served)
        return opened

    def _scorer_in(self, folder: Path | None) -> tuple[Allocation, Callable[[], Scorer]]:
        """Return the allocation of a reward model, and what opens it."""
        model = str(folder or locate_model(self.config.reward.model, "reward"))
        name = f"{REWARD} {model}"
        config, log = self.config.reward, self.logs / "reward.log"
        identity = None if folder else self.reward_id
        allocation = self._allocation(
            name, config, lambda: self.inventory.scorer(name, model, config)
        )
        return allocation, lambda: open_scorer(model, config, log=log, identity=identity)

    def _load_reward_model(self) -> None:
        """Start to load the configured reward model while M_0 loads, if both fit."""
        if self.reward_id is not None:
            allocation, open_model = self._scorer_in(None)
            if self.inventory.is_free(allocation):
                self._loaded.open_ahead(allocation, open_model)

    def _load_next_engine(self) -> None:
        """Start the engine of M_1 while M_0 works, if a judge keeps M_0's and all fit.

        It loads M_0's weights, which `_hand_over` replaces.
        """
        policy = self.initial
        judges = {judge.engine_name for judge in self.judging.values()}
        with self._changing:
            is_trained = any(other.canary is not None for other in self._policies.values())
        if is_trained or not self.training_bytes or policy.engine_name not in judges:
            return
        name, engine = f"{NEXT}{policy.engine_name}", policy.engine
        allocation = self._allocation(
            name, engine, lambda: self.inventory.engine(name, policy.location, engine)
        )
        if not self.inventory.is_free(allocation):
            return
        training = self.inventory.training(self.config.training.devices, self.training_bytes)
        if self._loaded.open_ahead(allocation, lambda: self._open(name, policy), training):
            with self._changing:
                self._policies[name] = policy

    def _hand_over(self, served: Served, allocation: Allocation) -> None:
        """Load the weights of a policy into the engine of its predecessor, if possible.

        Once there is a new checkpoint, the previous one is not used again and its engine is free;
        M_0 may still be needed for references.
        """
        old, before = self._predecessor(served)
        if before is None:
            return
        engine = self._loaded.get(old)
        rows = () if served.canary is None else read_canary(served.canary)
        # The GPUs of other machines are unknown; the check assumes that they have some.
        on_gpu = bool(self.inventory.cards) or before.engine.place != "local"
        if isinstance(engine, HostedModel) and rows and is_like(before, served, on_gpu=on_gpu):

            def reload() -> None:
                engine.reload(Path(served.location))
                engine.prove(rows)

            self._loaded.replace(old, allocation, reload)
        elif before.canary is not None or old.startswith(NEXT):
            self._loaded.close(old)
        else:
            return
        with self._changing:
            self._policies.pop(old, None)

    def _predecessor(self, served: Served) -> tuple[str, Served | None]:
        """Return the engine that can take over and its policy, preferably with the same settings.

        A policy that also judges may run under two settings: neither engine replaces the other.
        """
        if served.canary is None:
            return "", None
        judges = {judge.engine_name for judge in self.judging.values()}
        with self._changing:
            policies = list(self._policies.items())
        others = [
            (name, policy)
            for name, policy in policies
            if name in self._loaded and policy.identity != served.identity
        ]
        free = sorted(others, key=lambda found: not run_alike(found[1].engine, served.engine))
        trained = [(name, policy) for name, policy in free if policy.canary is not None]
        first = [(name, p) for name, p in free if p.canary is None and name not in judges]
        return next(iter([*trained, *first]), ("", None))


def _runs_here(served: Served) -> bool:
    """Whether a model takes devices of this machine or of a Ray cluster."""
    return engine_kind(served.location, served.engine) in ("vllm", "transformers")


def place_of(config: RunConfig, role: str) -> tuple[str, EngineConfig]:
    """Return place and engine of a judge or an annotator: the critic's, unless it has its own.

    Annotators and the judge that scores answers have no default.
    """
    first, _, kind = role.partition(".")
    if first == ANNOTATION:
        own = config.annotation.model_of(cast("Role", kind))
    elif role == SCORING_JUDGE:
        own = config.assessment.judge
    else:
        own = {GRADING: config.grading, QUALITY: config.prompts.quality}.get(role)
        if own is None or own.model is None:
            return config.critic.model, config.critic.engine
    return own.model or NO_MODEL, own.engine


def _identify(role: str, model: str, engine: EngineConfig) -> Served:
    """Return the model in a role; errors name the role."""
    try:
        return identify_model(model, engine)
    except EngineError as error:
        raise EngineError(f"{role}: {error}") from error


def _reward_id(config: RunConfig) -> str:
    """Return the identity of the reward model; its chat template must be usable."""
    place = locate_model(config.reward.model, "reward")
    identity = scorer_digest(place)
    if not names_function(place):
        require_chat(Path(place), EngineConfig())
    return identity


def _prove_weights(engine: Engine, served: Served) -> None:
    """Close an engine that does not run the weights that the trainer measured, and raise why."""
    if served.canary is None:
        return
    rows = read_canary(served.canary)
    if not rows:
        logger.warning("%s lacks a canary: only its hash proves the weights", served.location)
    # Scripts and endpoints cannot measure.
    if isinstance(engine, HostedModel):
        try:
            engine.prove(rows)
        except EngineError:
            engine.close()
            raise
