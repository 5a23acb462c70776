"""The device memory that each stage of a run needs: its models, its trainings, the canary.

The terms come from `policies.memory`; here they meet the configuration.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from ...configs.engines import EngineConfig
from ...configs.group_methods import OnlineSettings
from ...configs.grouped_recipes import Grouped
from ...configs.own_function import names_function
from ...configs.recipes import Annotated, Graded
from ...configs.schema import RewardConfig, RunConfig
from ...configs.section import AutoCount, replicas_here
from ...configs.section import Devices as Numbers
from ...policies.memory.inference import (
    BLOCK,
    KV_CACHE,
    Inference,
    canary_terms,
    inference_of,
    number_bytes,
    scorer_terms,
    transformers_terms,
    vllm_terms,
)
from ...policies.memory.shapes import ModelShape, UnknownShapeError, shape_of
from ...policies.memory.stage_memory import GIB, StageMemory, Term, fixed, summed
from ...policies.memory.training import (
    Workload,
    published_number,
    training_terms,
)
from ...policies.trainers.job import ONLINE, Method, Settings
from ...policies.trainers.launch import processes_of
from ...policies.trainers.training_fit import placed_fit
from ...policies.workers.open import engine_kind
from ..recipes.roles import COMPLETION, NeededRole, trainings
from ..run.models import CRITIC, NLI, REWARD, is_endpoint, is_rewarded, located
from .hardware import Devices

Shapes = Callable[[Path], ModelShape]
VLLM, TRANSFORMERS = "vllm", "transformers"
ELSEWHERE = "its workers are on other machines, whose memory is not known here"
SCORES, CANARY = "reward scores", "measure the canary"
TRAINS = "train by"
"""How the stages of trainings begin."""


def engine_section(role: str) -> str | None:
    """Return the section of a role's engine in the configuration; a pool's file has its models'."""
    if role in (REWARD, NLI) or role.startswith(COMPLETION):
        return None
    return f"{role}.engine"


@dataclass(frozen=True, kw_only=True)
class MemoryStages:
    """The stages of a run that asks `roles`; `shapes` returns the sizes of a model's folder."""

    config: RunConfig
    roles: Sequence[NeededRole]
    have: Devices
    shapes: Shapes = shape_of

    def every(self) -> Iterator[StageMemory]:
        """Yield the stages of the engines, the reward model, the trainings and the canary."""
        for role, names in self._engines():
            stage = f"{', '.join(names)} answers ({self._kind(role)})"
            sections = tuple(filter(None, map(engine_section, names)))
            for found in self._known(stage, lambda s=stage, r=role: self._engine(s, r)):
                yield replace(found, sections=sections)
        if any(r.name == REWARD and not names_function(r.model) for r in self.roles):
            for found in self._known(SCORES, self._scoring):
                yield replace(found, sections=(REWARD,))
        for method in self.methods:
            for found in self._known(f"{TRAINS} {method}", lambda m=method: self._training(m)):
                yield replace(found, sections=(f"training.{method}",))
        if {*self.methods} - {"reward"}:
            yield from self._known(CANARY, self._canary)

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
            kept = [*self._trained(method, "never")]
        except UnknownShapeError:
            return True
        return any(s.verdict != "fits" for s in kept if s.stage == f"{TRAINS} {method}")

    def _known(
        self, stage: str, found: Callable[[], Iterable[StageMemory]]
    ) -> Iterator[StageMemory]:
        """Yield the stages found, or an unknown one while a model's sizes are missing."""
        try:
            yield from found()
        except UnknownShapeError as error:
            yield StageMemory(
                stage=stage,
                device=self.have.name,
                has_bytes=self.have.memory,
                unknown=str(error),
            )

    # engines

    def _engines(self) -> Iterator[tuple[NeededRole, list[str]]]:
        """Yield the roles with a model here, with the names of all roles of the same engine."""
        found: dict[str, tuple[NeededRole, list[str]]] = {}
        for role in self.roles:
            if role.engine is not None and self._kind(role) in (VLLM, TRANSFORMERS):
                key = f"{located(role.model)} {role.engine.model_dump_json()}"
                found.setdefault(key, (role, []))[1].append(role.name)
        yield from found.values()

    def _kind(self, role: NeededRole) -> str:
        """Return the engine of a role's model; "" for a reward model or an unset one."""
        if role.engine is None or not role.named:
            return ""
        return engine_kind(located(role.model), role.engine)

    def _engine(self, stage: str, role: NeededRole) -> Iterator[StageMemory]:
        """Yield an engine's stage; on a CPU vLLM's cache has a separate size, and a stage."""
        engine = role.engine or EngineConfig()
        copies = _copies(engine)
        shape = self.shapes(Path(located(role.model)))
        if role.name == "policy" and {*self.methods} - {"reward"}:
            # From the second iteration on it is as the training here publishes it.
            fit = placed_fit(self.config)
            shape = shape.as_saved(published_number(fit, on_gpu=self.have.on_gpu))
        inference = self._inference(role, shape)
        if self._kind(role) == TRANSFORMERS:
            terms = self._drawing(shape, inference, self.config.prompts.chunk)
            found = self._on_device(stage, terms, engine.devices, copies)
            yield replace(found, context=inference.context)
        elif self.have.on_gpu:
            share = engine.memory_utilization
            yield self._vllm(stage, shape, inference, engine.devices, share)
        else:
            size = engine.kv_cache_gib * GIB
            cache = fixed(KV_CACHE, inference.cache(shape, inference.context))
            found = StageMemory(
                stage=f"{stage}: cache",
                device="engine.kv_cache_gib",
                has_bytes=size,
                terms=(cache,),
            )
            yield _with_room(found, shape, inference, size)
            terms = [fixed("weights", inference.weights(shape)), fixed(KV_CACHE, size)]
            yield self._on_device(stage, terms, engine.devices, copies)

    def _inference(self, role: NeededRole, shape: ModelShape) -> Inference:
        engine, by_vllm = role.engine or EngineConfig(), self._kind(role) == VLLM
        return inference_of(shape, engine, by_vllm=by_vllm, on_gpu=self.have.on_gpu)

    def _drawing(self, shape: ModelShape, inference: Inference, rows: int) -> list[Term]:
        answer = self.config.policy.sampling.max_tokens
        return transformers_terms(
            shape, inference, rows=rows, answer=answer, on_gpu=self.have.on_gpu
        )

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
        copies = _copies(reward)
        shape = self.shapes(Path(located(reward.model, "reward")))
        length = min(reward.max_length, shape.context or reward.max_length)
        number = self._reward_number(shape)
        if reward.runner == VLLM and on_gpu:
            inference = Inference(weight_bytes=number, context=length)
            share = EngineConfig().memory_utilization
            unworded = replace(shape, vocabulary=1)  # It computes no logits.
            yield self._vllm(SCORES, unworded, inference, reward.devices, share)
        else:
            terms = scorer_terms(
                shape, number, rows=reward.batch_size, length=length, on_gpu=on_gpu
            )
            yield self._on_device(SCORES, terms, reward.devices, copies)

    def _reward_number(self, shape: ModelShape) -> float:
        """Return the bytes of a reward model's weight: by default bfloat16 on a GPU."""
        dtype = self.config.reward.dtype
        if dtype == "auto":
            dtype = "bfloat16" if self.have.on_gpu else "float32"
        return number_bytes(dtype, shape, on_gpu=self.have.on_gpu)

    # trainings

    def _training(self, method: Method) -> Iterator[StageMemory]:
        yield from self._trained(method, "always" if self.recomputes(method) else "never")

    def _trained(
        self, method: Method, gradient_checkpointing: Literal["always", "never"]
    ) -> Iterator[StageMemory]:
        """Yield the stages of a training that recomputes activations or does not."""
        config, settings = self.config, self._settings(method)
        shape = self.shapes(Path(located(config.policy.model)))
        start = self._reward_start(shape) if method == "reward" else shape
        processes, divided = self._processes(settings), self._is_divided(method)
        reward = self._reward(shape) if method in ONLINE else None
        work = Workload(
            method=method,
            rows=settings.micro_batch_size,
            length=settings.max_length,
            accumulation=settings.batch_size // (settings.micro_batch_size * processes),
            processes=processes,
            divided=divided,
            on_gpu=self.have.on_gpu,
            fit=replace(placed_fit(config), gradient_checkpointing=gradient_checkpointing),
            reference=self._has_reference(method, divided=divided),
            answer=config.policy.sampling.max_tokens,
            reward_number=0 if reward is None else self._reward_number(reward),
        )
        stage, terms = f"{TRAINS} {method}", training_terms(start, work, reward)
        if isinstance(settings, OnlineSettings):
            beside, others = self._beside(method, settings, shape, processes)
            yield from others
            terms += beside
        found = self._on_trainer(stage, terms, processes)
        yield replace(
            found, note="activations are recomputed" if gradient_checkpointing == "always" else ""
        )

    def _has_reference(self, method: Method, *, divided: bool) -> bool:
        """Whether a training loads a second, frozen model.

        An online method's first reference is the base model below the adapters, if there are any.
        DPO and KTO compute it with the trained model before they begin, unless it is divided.
        """
        training = self.config.training
        whole = training.lora.r == 0
        later = self.config.iterations > 1 and training.reference == "initial"
        if method in ONLINE:
            return later or whole
        return method in ("dpo", "kto") and (later or divided)

    def _is_divided(self, method: Method) -> bool:
        """Whether FSDP2 divides a training; online methods do not divide adapters.

        Raises:
            UnknownShapeError: if a file for accelerate decides.
        """
        training = self.config.training
        if method in ONLINE:
            several = self._processes(self._settings(method)) > 1
            return training.sharding != "none" and not training.lora.r and several
        if training.accelerate_config is not None:
            raise UnknownShapeError(
                "not known with a file for accelerate (training.accelerate_config)"
            )
        return training.sharding != "none"

    def _beside(
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
                share = settings.sampler_memory
                setting = f"training.{method}.sampler_memory"
            stages.append(
                self._vllm(f"{stage}: sampler", shape, inference, engine.devices, share, setting)
            )
            sampler = fixed("sampler", stages[0].has_bytes)
        else:
            sampler = summed("sampler", self._drawing(shape, inference, settings.rollouts))
        beside = [sampler] if sampled & trained else []
        for critic in self._rewarding_critics():
            judged = {*self._cards((critic.engine or EngineConfig()).devices)}
            *_, found = self._engine(critic.name, critic)
            by_vllm = self.have.on_gpu and self._kind(critic) == VLLM
            held = fixed(CRITIC, found.has_bytes) if by_vllm else summed(CRITIC, found.terms)
            if judged & trained:
                beside.append(held)
            if judged & sampled and not sampled & trained:
                both = [sampler, held]
                name = f"{stage}: sampler and critic"
                stages.append(self._on_device(name, both, engine.devices))
        return beside, stages

    def _rewarding_critics(self) -> list[NeededRole]:
        """Return the critic if it runs here and rewards the samples of a training."""
        recipe = self.config.recipe
        if not (isinstance(recipe, Grouped) and recipe.rewards.critic):
            return []
        local = (role for role in self.roles if self._kind(role) in (VLLM, TRANSFORMERS))
        return [r for r in local if r.name == CRITIC and r.engine and _here(r.engine) is not None]

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
        return self.shapes(Path(located(config.reward.model, "reward")))

    def _reward_start(self, shape: ModelShape) -> ModelShape:
        """Return the model that a reward model begins as: by default the policy's."""
        named = self.config.training.reward.model
        return shape if named is None else self.shapes(Path(located(named)))

    def _canary(self) -> Iterator[StageMemory]:
        """Yield the measurement of the trained policy on the longest rows of its training.

        A model too large for the first GPU of a node's processes continues on the next ones.
        """
        shape = self.shapes(Path(located(self.config.policy.model)))
        trained = [self._settings(method) for method in self.methods if method != "reward"]
        longest = max(settings.max_length for settings in trained)
        on_gpu = self.have.on_gpu
        found = self._on_trainer(CANARY, canary_terms(shape, length=longest, on_gpu=on_gpu))
        nodes = self.config.training.nodes
        count = min(map(self._processes, trained)) // nodes if on_gpu else 1
        device = f"{count} GPUs" if count > 1 else found.device
        yield replace(found, device=device, has_bytes=count * found.has_bytes)

    def _settings(self, method: Method) -> Settings:
        settings: Settings = getattr(self.config.training, method)
        return settings

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
        here = max(1, processes // training.nodes)
        return self._on_device(stage, terms, training.devices, here)

    def _on_device(
        self, stage: str, terms: Sequence[Term], devices: Numbers, copies: AutoCount = 1
    ) -> StageMemory:
        """Return a stage on each of its devices; without a GPU all copies share the memory."""
        have = self.have.of(devices)
        sharing = 1 if have.on_gpu or copies == "auto" else copies
        return StageMemory(
            stage=stage,
            device=have.name,
            has_bytes=have.memory // sharing,
            terms=tuple(term for term in terms if term.most_bytes),
        )


def _with_room(
    stage: StageMemory, shape: ModelShape, inference: Inference, room: int
) -> StageMemory:
    """Return vLLM's stage with how many requests, and which context, fit into `room` bytes."""
    context = inference.context
    requests = max(0, room) / inference.cache(shape, context)
    return replace(
        stage,
        note=f"{requests:.0f} requests of {context} tokens at once",
        context=context,
        fitting=max(0, room) // inference.cache(shape, BLOCK) * BLOCK,
    )


def _here(part: EngineConfig | RewardConfig) -> AutoCount | None:
    """Return how many replicas of a model share this machine; None if it is elsewhere."""
    return replicas_here(part.place, part.replicas)


def _copies(part: EngineConfig | RewardConfig) -> AutoCount:
    """Return how many replicas of a model share this machine.

    Raises:
        UnknownShapeError: if all are on other machines.
    """
    found = _here(part)
    if found is None:
        raise UnknownShapeError(ELSEWHERE)
    return found
