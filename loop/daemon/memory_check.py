"""Whether each stage of a run fits into its device's memory, and which settings help if not.

The terms come from `policies.memory`; here they meet the configuration: a run's engines, its reward
model, its trainings and the canary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from ...configs.engines import EngineConfig
from ...configs.own_function import names_function
from ...configs.recipes import Annotated, Graded, Grouped
from ...configs.schema import ConfigError, RewardConfig, RunConfig
from ...configs.section import AutoCount
from ...configs.section import Devices as Numbers
from ...configs.training import OnlineSettings
from ...policies.engines.engine import EngineError
from ...policies.memory.shapes import ModelShape, UnknownShapeError, shape_of
from ...policies.memory.terms import (
    BLOCK,
    GIB,
    KV_CACHE,
    Inference,
    Term,
    Workload,
    canary_terms,
    fixed_term,
    inference_of,
    number_bytes,
    published_number,
    scorer_terms,
    sum_terms,
    training_terms,
    transformers_terms,
    vllm_terms,
)
from ...policies.trainers.job import ONLINE, Method, Settings
from ...policies.trainers.launch import processes_of
from ...policies.trainers.training_fit import placed_fit
from ...policies.workers.engine_factory import engine_kind
from ..recipes.roles import NeededRole, trainings
from ..run.models import CRITIC, REWARD, is_endpoint, is_rewarded, locate_model
from .machine_check import Devices, devices, engine_section

MARGIN = 0.1
"""The share of a device that must stay free, and by which the arithmetic may be wrong.

Measured trainings were within 5 %, without the fragments that an allocator cannot use: a training
for which 135 of 140 GiB were computed ran out of memory.
"""
VLLM, TRANSFORMERS = "vllm", "transformers"
SCORES, CANARY = "reward scores", "measure the canary"
TRAINS = "train by"
"""How the stages of trainings begin."""

SHORTEST = 256
"""Tokens below which no length is proposed."""

Shapes = Callable[[Path], ModelShape]
Verdict = Literal["fits", "may not fit", "does not fit", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """A stage's terms on one device; `unknown` is the reason why they cannot be computed.

    `has_bytes` is the memory that the stage may use: the device's, or the share that a setting
    gives it. `note` is printed after the terms. `sections` are the parts of the configuration that
    change the stage. `fitting` is the longest context that fits, in tokens, if it is shorter than
    the engine's. `advice` are settings that help a stage that may not fit.
    """

    stage: str
    device: str
    has_bytes: int
    terms: tuple[Term, ...] = ()
    unknown: str = ""
    note: str = ""
    sections: tuple[str, ...] = ()
    fitting: int = 0
    advice: str = ""

    @property
    def least_bytes(self) -> int:
        """The bytes that the stage needs for any texts."""
        return sum(term.least_bytes for term in self.terms)

    @property
    def most_bytes(self) -> int:
        """The bytes that the stage needs if texts are as long as the settings allow."""
        return sum(term.most_bytes for term in self.terms)

    @property
    def verdict(self) -> Verdict:
        """Whether the stage fits with a margin; "may not fit" if texts or margin decide."""
        if self.unknown:
            return "not known"
        if self.least_bytes * (1 - MARGIN) > self.has_bytes:
            return "does not fit"
        return "fits" if self.most_bytes <= self.has_bytes * (1 - MARGIN) else "may not fit"

    @property
    def is_tight(self) -> bool:
        """Whether the stage may not fit, or does not."""
        return self.verdict in ("may not fit", "does not fit")

    def as_text(self) -> str:
        """Return the terms, their sum and the device's memory in one line."""
        if self.unknown:
            return self.unknown
        terms = " + ".join(f"{t.name} {gib(t.most_bytes)}" for t in self.terms if t.most_bytes)
        total = f"{gib(self.most_bytes)} of {gib(self.has_bytes)} GiB ({self.device})"
        return f"{terms} = {total}{f'; {self.note}' if self.note else ''}"


def gib(size: int) -> str:
    """Return a size in GiB with three digits."""
    return f"{size / GIB:.3g}"


def require_memory(config: RunConfig, roles: Sequence[NeededRole], *, trains: bool = True) -> None:
    """Refuse a run one of whose stages cannot fit, unless the setting `memory` allows it.

    `trains`: the run's trainings are part of it.

    Raises:
        ConfigError: naming the stage, its need, and the settings that would help.
    """
    if config.memory != "refuse":
        return
    planned = config if trains else config.model_copy(update={"iterations": 0})
    try:
        stages = MemoryStages(config=planned, roles=roles).advised()
    except EngineError as error:
        raise ConfigError(str(error)) from error
    impossible = [
        f"{stage.stage} needs {gib(stage.least_bytes)} GiB at least and has "
        f"{gib(stage.has_bytes)} ({stage.device}): {stage.advice}"
        for stage in stages
        if stage.verdict == "does not fit"
    ]
    if impossible:
        raise ConfigError(
            f"this cannot fit into memory, by arithmetic (which may be {MARGIN:.0%} off): "
            f"{'; '.join(impossible)}; `lpfloop doctor` shows the terms, --set memory=warn tries it"
        )


@dataclass(frozen=True, kw_only=True)
class MemoryStages:
    """The stages of a run that asks `roles`, on the devices that the trainer and models `have`.

    `shapes` returns the sizes of a model's folder.
    """

    config: RunConfig
    roles: Sequence[NeededRole]
    have: Devices = field(default_factory=devices)
    shapes: Shapes = field(default_factory=lambda: cache(shape_of))

    @property
    def training_bytes(self) -> int:
        """The most memory that a training needs on its device; a whole device if unknown."""
        needs = [s for s in self.every() if s.stage.startswith((TRAINS, CANARY))]
        return max((s.has_bytes if s.unknown else s.most_bytes for s in needs), default=0)

    @property
    def keeps_activations(self) -> frozenset[Method]:
        """The trainings that fit without recomputing activations."""
        return frozenset(method for method in self.methods if not self.recomputes(method))

    def advised(self) -> tuple[StageMemory, ...]:
        """Return the stages, with advice for those that may not fit.

        Raises:
            EngineError: when nothing installed can run a model.
        """
        return tuple(
            replace(stage, advice=_advice(stage, self.config, self.have))
            if stage.is_tight
            else stage
            for stage in self.every()
        )

    def every(self) -> Iterator[StageMemory]:
        """Yield the stages; one whose model has unknown sizes has the reason instead of terms."""
        engines: dict[str, list[NeededRole]] = {}
        for role in self.roles:
            if self._is_here(role) and role.engine is not None:
                key = f"{locate_model(role.model)} {role.engine.model_dump_json()}"
                engines.setdefault(key, []).append(role)
        for first, *others in engines.values():
            names = [role.name for role in (first, *others)]
            stage = f"{', '.join(names)} answers ({self._kind(first)})"
            sections = tuple(filter(None, map(engine_section, names)))
            yield from self._known(stage, sections, self._engine(stage, first))
        scored = any(r.name == REWARD and not names_function(r.model) for r in self.roles)
        if scored and _copies(self.config.reward) is not None:
            yield from self._known(SCORES, (REWARD,), self._scoring())
        for method in self.methods:
            found = self._training(method, recomputed=self.recomputes(method))
            yield from self._known(f"{TRAINS} {method}", (f"training.{method}",), found)
        if {*self.methods} - {"reward"}:
            yield from self._known(CANARY, (), self._canary())

    def _known(
        self, stage: str, sections: tuple[str, ...], found: Iterator[StageMemory]
    ) -> Iterator[StageMemory]:
        """Yield the stages found with their sections, or why they cannot be computed."""
        try:
            yield from (replace(each, sections=sections) for each in found)
        except UnknownShapeError as error:
            yield StageMemory(
                stage=stage,
                device=self.have.name,
                has_bytes=self.have.memory,
                unknown=str(error),
            )

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """The trainings of the run: empty without iterations, or if its policy is elsewhere."""
        local = any(r.name == "policy" and not is_endpoint(r.model) for r in self.roles)
        if not local or self.config.iterations == 0:
            return ()
        found, recipe = trainings(self.roles), self.config.recipe
        scored = is_rewarded(self.config) or not isinstance(recipe, Annotated | Graded)
        return found if scored or not ONLINE & {*found} else ("reward", *found)

    def recomputes(self, method: Method) -> bool:
        """Whether a training recomputes activations: "auto" is false if it fits without."""
        setting = self.config.training.gradient_checkpointing
        if setting != "auto":
            return setting == "always"
        try:
            kept = [*self._training(method, recomputed=False)]
        except UnknownShapeError:
            return True
        return any(s.verdict != "fits" for s in kept if s.stage == f"{TRAINS} {method}")

    # engines

    def _kind(self, role: NeededRole) -> str:
        """Return the engine of a role's model; "" for a reward model or an unset one."""
        if role.engine is None or not role.named:
            return ""
        return engine_kind(locate_model(role.model), role.engine)

    def _is_here(self, role: NeededRole) -> bool:
        """Whether a role's engine takes memory of this machine."""
        here = self._kind(role) in (VLLM, TRANSFORMERS)
        return here and role.engine is not None and _copies(role.engine) is not None

    def _engine(self, stage: str, role: NeededRole) -> Iterator[StageMemory]:
        """Yield an engine's stage; on a CPU vLLM's cache has a separate size, and a stage."""
        engine = role.engine or EngineConfig()
        copies = _copies(engine) or 1
        shape = self.shapes(Path(locate_model(role.model)))
        if role.name == "policy" and {*self.methods} - {"reward"}:
            # From the second iteration on it is as the training here publishes it.
            fit = placed_fit(self.config)
            shape = shape.as_saved(published_number(fit, on_gpu=self.have.on_gpu))
        inference = self._inference(role, shape)
        if self._kind(role) == TRANSFORMERS:
            terms = self._drawing(shape, inference, self.config.prompts.chunk)
            yield self._on_device(stage, terms, engine.devices, copies)
        elif self.have.on_gpu:
            share = engine.memory_utilization
            yield self._vllm(stage, shape, inference, engine.devices, share)
        else:
            size = engine.kv_cache_gib * GIB
            cache = fixed_term(KV_CACHE, inference.cache(shape, inference.context))
            setting = "engine.kv_cache_gib"
            found = StageMemory(
                stage=f"{stage}: cache", device=setting, has_bytes=size, terms=(cache,)
            )
            yield _with_room(found, shape, inference, size)
            terms = [fixed_term("weights", inference.weights(shape)), fixed_term(KV_CACHE, size)]
            yield self._on_device(stage, terms, engine.devices, copies)

    def _inference(self, role: NeededRole, shape: ModelShape) -> Inference:
        engine, by_vllm = role.engine or EngineConfig(), self._kind(role) == VLLM
        return inference_of(shape, engine, by_vllm=by_vllm, on_gpu=self.have.on_gpu)

    def _drawing(self, shape: ModelShape, inference: Inference, rows: int) -> list[Term]:
        answer, on_gpu = self.config.policy.sampling.max_tokens, self.have.on_gpu
        return transformers_terms(shape, inference, rows=rows, answer=answer, on_gpu=on_gpu)

    def _vllm(
        self,
        stage: str,
        shape: ModelShape,
        inference: Inference,
        devices: Numbers,
        share: float,
        setting: str = "vLLM's share",
    ) -> StageMemory:
        """Return the stage of vLLM in its share of a GPU."""
        have = self.have.of(devices)
        found = StageMemory(
            stage=stage,
            device=f"{setting} of {have.name}",
            has_bytes=round(share * have.memory),
            terms=tuple(vllm_terms(shape, inference, have.memory)),
        )
        others = sum(term.most_bytes for term in found.terms if term.name != KV_CACHE)
        return _with_room(found, shape, inference, found.has_bytes - others)

    def _scoring(self) -> Iterator[StageMemory]:
        reward, on_gpu = self.config.reward, self.have.on_gpu
        copies = _copies(reward) or 1
        shape = self.shapes(Path(locate_model(reward.model, "reward")))
        length = min(reward.max_length, shape.context or reward.max_length)
        number = self._reward_number(shape)
        rows = reward.batch_size
        terms = scorer_terms(shape, number, rows=rows, length=length, on_gpu=on_gpu)
        yield self._on_device(SCORES, terms, reward.devices, copies)

    def _reward_number(self, shape: ModelShape) -> float:
        """Return the bytes of a reward model's weight: by default bfloat16 on a GPU."""
        dtype, on_gpu = self.config.reward.dtype, self.have.on_gpu
        if dtype == "auto":
            dtype = "bfloat16" if on_gpu else "float32"
        return number_bytes(dtype, shape, on_gpu=on_gpu)

    # trainings

    def _training(self, method: Method, *, recomputed: bool) -> Iterator[StageMemory]:
        """Yield the stages of a training whose activations are `recomputed`, or kept.

        Online methods do not divide adapters. An online method's first reference is the base model
        below the adapters, if there are any. DPO and KTO compute it with the trained model before
        they begin, unless it is divided.
        """
        config, settings = self.config, self._settings(method)
        training, online = config.training, method in ONLINE
        shape = self.shapes(Path(locate_model(config.policy.model)))
        start = self._reward_start(shape) if method == "reward" else shape
        processes = self._processes(settings)
        divided = training.sharding != "none"
        later = config.iterations > 1 and training.reference == "initial"
        if online:
            divided &= not training.lora.r and processes > 1
            reference = later or training.lora.r == 0
        else:
            reference = method in ("dpo", "kto") and (later or divided)
        reward = self._reward(shape) if online else None
        again = "always" if recomputed else "never"
        work = Workload(
            method=method,
            rows=settings.micro_batch_size,
            length=settings.max_length,
            accumulation=settings.batch_size // (settings.micro_batch_size * processes),
            processes=processes,
            divided=divided,
            on_gpu=self.have.on_gpu,
            fit=replace(placed_fit(config), gradient_checkpointing=again),
            reference=reference,
            answer=config.policy.sampling.max_tokens,
            reward_number=0 if reward is None else self._reward_number(reward),
        )
        stage, terms = f"{TRAINS} {method}", training_terms(start, work, reward)
        if isinstance(settings, OnlineSettings):
            held_there, others = self._sampler_memory(method, settings, shape, processes)
            yield from others
            terms += held_there
        note = "activations are recomputed" if recomputed else ""
        yield replace(self._on_trainer(stage, terms, processes), note=note)

    def _sampler_memory(
        self, method: Method, settings: OnlineSettings, shape: ModelShape, processes: int
    ) -> tuple[list[Term], list[StageMemory]]:
        """Return the memory of an online method's sampler and critic on the trainer's devices.

        And their stages: vLLM in its share, and both on one GPU.
        """
        config, stage = self.config, f"{TRAINS} {method}"
        policy = next(role for role in self.roles if role.name == "policy")
        engine = policy.engine or EngineConfig()
        inference = self._inference(policy, shape)
        here = processes // config.training.nodes
        trained = {*self._cards(config.training.devices)[:here]}
        sampled = {*self._cards(engine.devices)}
        stages = list[StageMemory]()
        if self.have.on_gpu and self._kind(policy) == VLLM:
            share, setting = engine.memory_utilization, "vLLM's share"
            if sampled & trained:
                share, setting = settings.sampler_memory, f"training.{method}.sampler_memory"
            name = f"{stage}: sampler"
            stages.append(self._vllm(name, shape, inference, engine.devices, share, setting))
            sampler = fixed_term("sampler", stages[0].has_bytes)
        else:
            sampler = sum_terms("sampler", self._drawing(shape, inference, settings.rollouts))
        held_there = [sampler] if sampled & trained else []
        if critic := self._rewarding_critic():
            judged = {*self._cards((critic.engine or EngineConfig()).devices)}
            *_, found = self._engine(critic.name, critic)
            by_vllm = self.have.on_gpu and self._kind(critic) == VLLM
            held = (
                fixed_term(CRITIC, found.has_bytes) if by_vllm else sum_terms(CRITIC, found.terms)
            )
            if judged & trained:
                held_there.append(held)
            if judged & sampled and not sampled & trained:
                name = f"{stage}: sampler and critic"
                stages.append(self._on_device(name, [sampler, held], engine.devices))
        return held_there, stages

    def _rewarding_critic(self) -> NeededRole | None:
        """Return the critic if it runs here and rewards the samples of a training."""
        recipe = self.config.recipe
        if not (isinstance(recipe, Grouped) and recipe.rewards.critic):
            return None
        return next((r for r in self.roles if r.name == CRITIC and self._is_here(r)), None)

    def _reward(self, shape: ModelShape) -> ModelShape | None:
        """Return the reward model that an online method scores by, if it is a model."""
        config = self.config
        if isinstance(config.recipe, Grouped):
            if not config.recipe.rewards.reward:
                return None
        elif not is_rewarded(config):
            return self._reward_start(shape).as_classifier()
        if names_function(config.reward.model):
            return None
        return self.shapes(Path(locate_model(config.reward.model, "reward")))

    def _reward_start(self, shape: ModelShape) -> ModelShape:
        """Return the model that a reward model begins as: by default the policy's."""
        named = self.config.training.reward.model
        return shape if named is None else self.shapes(Path(locate_model(named)))

    def _canary(self) -> Iterator[StageMemory]:
        """Yield the measurement of the trained policy on the longest rows of its training.

        A model too large for the first GPU of a node's processes continues on the next ones.
        """
        shape = self.shapes(Path(locate_model(self.config.policy.model)))
        trained = [self._settings(method) for method in self.methods if method != "reward"]
        longest = max(settings.max_length for settings in trained)
        on_gpu = self.have.on_gpu
        found = self._on_trainer(CANARY, canary_terms(shape, length=longest, on_gpu=on_gpu))
        nodes = self.config.training.nodes
        count = min(map(self._processes, trained)) // nodes if on_gpu else 1
        device = f"{count} GPUs" if count > 1 else found.device
        yield replace(found, device=device, has_bytes=count * found.has_bytes)

    def _settings(self, method: Method) -> Settings:
        return getattr(self.config.training, method)

    def _processes(self, settings: Settings) -> int:
        training = self.config.training
        return processes_of(training, settings, len(self.have.of(training.devices).cards))

    # devices

    def _cards(self, devices: Numbers) -> tuple[int, ...]:
        """Return the numbers of GPUs; without one, all share the number 0."""
        if not self.have.on_gpu:
            return (0,)
        return tuple(range(len(self.have.cards))) if devices == "auto" else tuple(devices)

    def _on_trainer(self, stage: str, terms: Sequence[Term], processes: int = 1) -> StageMemory:
        """Return a stage on a device of the trainer."""
        training = self.config.training
        return self._on_device(stage, terms, training.devices, max(1, processes // training.nodes))

    def _on_device(
        self, stage: str, terms: Sequence[Term], devices: Numbers, copies: AutoCount = 1
    ) -> StageMemory:
        """Return a stage on each of its devices; without a GPU all copies share the memory."""
        have = self.have.of(devices)
        sharing = 1 if have.on_gpu or copies == "auto" else copies
        kept = tuple(term for term in terms if term.most_bytes)
        size = have.memory // sharing
        return StageMemory(stage=stage, device=have.name, has_bytes=size, terms=kept)


def _with_room(
    stage: StageMemory, shape: ModelShape, inference: Inference, room: int
) -> StageMemory:
    """Return vLLM's stage with how many requests, and which context, fit into `room` bytes."""
    context, room = inference.context, max(0, room)
    requests = room / inference.cache(shape, context)
    longest = room // inference.cache(shape, BLOCK) * BLOCK
    note = f"{requests:.0f} requests of {context} tokens at once"
    return replace(stage, note=note, fitting=longest if longest < context else 0)


def _copies(part: EngineConfig | RewardConfig) -> AutoCount | None:
    """Return how many replicas of a model share this machine; None if it is elsewhere."""
    return part.replicas if part.place == "local" else None


# advice


def _advice(stage: StageMemory, config: RunConfig, have: Devices) -> str:
    """Return the settings that make such a stage smaller, those that change no row first."""
    found = list[str]()
    if any(path.endswith(".engine") for path in stage.sections):
        found = [f"{path}.{it}" for path in stage.sections for it in _engine_advice(stage, have)]
    elif stage.stage == SCORES:
        found = [f"reward.batch_size={max(1, config.reward.batch_size // 4)}"]
    elif stage.stage.startswith((TRAINS, CANARY)):
        found = _training_advice(stage, config, have)
    return f"what helps: {', '.join(found)}" if found else "use a smaller model or larger devices"


def _engine_advice(stage: StageMemory, have: Devices) -> Iterator[str]:
    if stage.fitting >= SHORTEST:
        yield f"max_model_len={stage.fitting}"
    if have.on_gpu:
        if len(have.cards) > 1:
            yield "tensor_parallel=2"
        yield "vllm.quantization=fp8"
    else:
        yield f"kv_cache_gib={-(-stage.most_bytes // GIB)}"


def _training_advice(stage: StageMemory, config: RunConfig, have: Devices) -> list[str]:
    training, terms = config.training, {term.name for term in stage.terms}
    online = any(f"training.{method}" in stage.sections for method in ONLINE)
    cards = len(have.of(training.devices).cards) * training.nodes
    advice = {
        "training.sharding=fsdp2 with training.processes=auto": cards > 1,
        "critic.engine.memory_utilization=0.4": CRITIC in terms,
        "other GPUs for training.devices than for policy.engine.devices": online and cards > 1,
        **{f"{path}.micro_batch_size=1": True for path in stage.sections},
        "training.lora.r=16": training.lora.r == 0,
        "training.lora.quantise=nf4": have.on_gpu and training.lora.quantise == "none",
        "training.gradient_checkpointing=always": training.gradient_checkpointing == "never",
        **{f"a smaller {path}.max_length": True for path in stage.sections},
    }
    return [text for text, applies in advice.items() if applies]
