"""The stages of a run in which an engine samples or judges, or the reward model scores."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...configs.engines import EngineConfig, VLLMConfig
from ...configs.own_function import names_function
from ...configs.schema import RewardConfig, RunConfig
from ...configs.section import AutoCount, replicas_here
from ...configs.section import Devices as Numbers
from ...policies.memory.engine_memory import (
    REQUEST,
    Hosting,
    cache_bytes,
    concurrency,
    longest_context,
    number_bytes,
    quantised_bytes,
    scorer_parts,
    transformers_parts,
    vllm_parts,
)
from ...policies.memory.shapes import ModelShape, UnknownShapeError
from ...policies.memory.states import published_number
from ...policies.memory.verdicts import GIB, Holding, StageMemory, at_most, fixed
from ...policies.trainers.training_fit import placed_fit
from ...policies.workers.open import engine_kind
from ..recipes.roles import COMPLETION, NeededRole
from ..run.models import NLI, REWARD, located
from .hardware import Devices

Shapes = Callable[[Path], ModelShape]
VLLM, TRANSFORMERS = "vllm", "transformers"
ELSEWHERE = "its workers are on other machines, whose memory is not known here"
CACHE = ": cache"
"""How the stage of a cache ends whose size is configured."""
DEFAULT_CONTEXT = 2048
"""The context of a model whose config.json names none."""


def engine_section(role: str) -> str | None:
    """Return where the configuration has a role's engine; a pool's file has its models'."""
    if role in (REWARD, NLI) or role.startswith(COMPLETION):
        return None
    return f"{role}.engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStages:
    """Gives the stages of the local models among `roles`; `shapes` gives a folder's sizes.

    `trained`: the policy's weights are those of a training here from the second iteration on.
    """

    config: RunConfig
    have: Devices
    shapes: Shapes
    roles: Sequence[NeededRole]
    trained: bool

    def stages(self) -> Iterator[StageMemory]:
        """Yield a stage for each model that an engine runs here, then the reward model's."""
        for role, others in self._engines():
            names = (role.name, *others)
            stage = f"{', '.join(names)} answers ({self.kind(role)})"
            sections = tuple(filter(None, map(engine_section, names)))
            if role.engine is not None and _copies(role.engine) is None:
                yield self.unknown(stage, ELSEWHERE)
                continue
            try:
                for found in self._engine(role, stage):
                    yield replace(found, sections=sections)
            except UnknownShapeError as error:
                yield self.unknown(stage, str(error))
        if reward := self._reward():
            try:
                yield (
                    self.unknown("reward scores", ELSEWHERE)
                    if _copies(self.config.reward) is None
                    else self._scoring(reward)
                )
            except UnknownShapeError as error:
                yield self.unknown("reward scores", str(error))
        with suppress(UnknownShapeError):
            yield from self._asleep()

    def unknown(self, stage: str, why: str) -> StageMemory:
        """Return a stage of which there is no arithmetic."""
        return StageMemory(
            stage=stage, device=self.have.name, has_bytes=self.have.memory, unknown=why
        )

    def shape(self, role: NeededRole) -> ModelShape:
        """Return the sizes of a role's model; a policy's as trained, where it is."""
        shape = self.shapes(
            Path(located(role.model, "reward" if role.name == REWARD else "policy"))
        )
        if role.name != "policy" or not self.trained:
            return shape
        fit = placed_fit(self.config)
        return shape.as_saved(published_number(fit, on_gpu=self.have.on_gpu))

    def reward_number(self, shape: ModelShape) -> float:
        """Return the bytes of a reward model's weight: by default bfloat16 on a GPU."""
        dtype = self.config.reward.dtype
        if dtype == "auto":
            dtype = "bfloat16" if self.have.on_gpu else "float32"
        return number_bytes(dtype, shape, on_gpu=self.have.on_gpu, halved=False)

    def _engines(self) -> Iterator[tuple[NeededRole, list[str]]]:
        """Yield the roles with a model here, each with the others that the same engine plays."""
        found: dict[str, tuple[NeededRole, list[str]]] = {}
        for role in self.roles:
            if self.kind(role) in (VLLM, TRANSFORMERS) and role.engine is not None:
                key = f"{located(role.model)} {role.engine.model_dump_json()}"
                if key in found:
                    found[key][1].append(role.name)
                else:
                    found[key] = (role, [])
        yield from found.values()

    def kind(self, role: NeededRole) -> str:
        """Return what runs a role's model; nothing for a reward model or one that is not named."""
        if role.engine is None or not role.named:
            return ""
        return engine_kind(located(role.model), role.engine)

    def _reward(self) -> NeededRole | None:
        """Return the role of the reward model, if the run has one and it is no function."""
        found = (role for role in self.roles if role.name == REWARD)
        return next((role for role in found if not names_function(role.model)), None)

    def hosting(self, role: NeededRole, shape: ModelShape) -> Hosting:
        """Return how an engine runs a role's model."""
        engine = role.engine or EngineConfig()
        on_gpu = self.have.on_gpu
        by_vllm = self.kind(role) == VLLM
        number = number_bytes(engine.dtype, shape, on_gpu=on_gpu, halved=by_vllm)
        given = engine.vllm if by_vllm else VLLMConfig()
        # What vLLM fits into memory by itself needs no more than a usual length.
        own = shape.context or DEFAULT_CONTEXT
        fitted = min(own, DEFAULT_CONTEXT) if engine.max_model_len == "auto" else own
        return Hosting(
            number_bytes=quantised_bytes(given.quantization or "", number),
            context=engine.context or fitted,
            tensor_parallel=engine.tensor_parallel if on_gpu else 1,
            cache_bytes=round(quantised_bytes(given.kv_cache_dtype, number)),
            eager=bool(given.enforce_eager),
            batched_tokens=given.max_num_batched_tokens,
            sequences=given.max_num_seqs,
        )

    def held_by(self, role: NeededRole) -> Iterator[Holding]:
        """Yield what the engine of a model here takes of its device: of a GPU, vLLM's share."""
        if self.kind(role) not in (VLLM, TRANSFORMERS) or role.engine is None:
            return
        if _copies(role.engine) is None:
            return
        for stage in self._engine(role, role.name):
            if self.kind(role) == VLLM and self.have.on_gpu:
                yield fixed(role.name, stage.has_bytes)
            elif not stage.stage.endswith(CACHE):
                least = sum(part.least_bytes for part in stage.parts)
                most = sum(part.most_bytes for part in stage.parts)
                yield Holding(name=role.name, least_bytes=least, most_bytes=most)

    def _engine(self, role: NeededRole, stage: str) -> Iterator[StageMemory]:
        shape = self.shape(role)
        hosting = self.hosting(role, shape)
        engine = role.engine or EngineConfig()
        if self.kind(role) == TRANSFORMERS:
            rows = self.config.prompts.chunk
            answer = self.config.policy.sampling.max_tokens
            parts = transformers_parts(
                shape, hosting, rows=rows, answer=answer, on_gpu=self.have.on_gpu
            )
            found = self._on_device(stage, parts, engine.devices, _copies(engine))
            yield replace(found, context=hosting.context)
        elif self.have.on_gpu:
            yield self._vllm(stage, shape, hosting, engine)
        else:
            yield from self._vllm_on_cpu(stage, shape, hosting, engine)

    def _vllm(
        self, stage: str, shape: ModelShape, hosting: Hosting, engine: EngineConfig
    ) -> StageMemory:
        have = self.have.of(engine.devices)
        card = have.memory
        share = round(card * engine.memory_utilization)
        parts = vllm_parts(shape, hosting, card)
        room = share - sum(part.most_bytes for part in parts if part.name != REQUEST)
        return StageMemory(
            stage=stage,
            device=f"vLLM's share of {have.name}",
            has_bytes=share,
            parts=tuple(parts),
            fitting=longest_context(shape, hosting, room_bytes=room),
            told=_at_once(shape, hosting, share, card),
            context=hosting.context,
        )

    def _vllm_on_cpu(
        self, stage: str, shape: ModelShape, hosting: Hosting, engine: EngineConfig
    ) -> Iterator[StageMemory]:
        """Yield the cache, whose size is configured, and the memory of all."""
        cache = engine.kv_cache_gib * GIB
        request = cache_bytes(shape, hosting, tokens=hosting.context)
        told = f"{cache / request:.0f} requests of {hosting.context} tokens at once"
        yield StageMemory(
            stage=f"{stage}{CACHE}",
            device="engine.kv_cache_gib",
            has_bytes=cache,
            parts=(fixed(REQUEST, request),),
            fitting=longest_context(shape, hosting, room_bytes=cache),
            told=told,
            context=hosting.context,
        )
        parts = [fixed("weights", hosting.weight_bytes(shape)), fixed("cache", cache)]
        yield self._on_device(stage, parts, engine.devices, _copies(engine))

    def _scoring(self, role: NeededRole) -> StageMemory:
        shape, reward = self.shape(role), self.config.reward
        on_gpu = self.have.on_gpu
        length = min(reward.max_length, shape.context or reward.max_length)
        number = self.reward_number(shape)
        if reward.runner == VLLM and on_gpu:
            have = self.have.of(reward.devices)
            # It scores: there are no logits.
            hosting = Hosting(number_bytes=number, context=length)
            return StageMemory(
                stage="reward scores",
                device=f"vLLM's share of {have.name}",
                has_bytes=round(EngineConfig().memory_utilization * have.memory),
                parts=tuple(vllm_parts(replace(shape, vocabulary=1), hosting, have.memory)),
                sections=(REWARD,),
            )
        parts = scorer_parts(
            shape, number_bytes=number, rows=reward.batch_size, length=length, on_gpu=on_gpu
        )
        found = self._on_device("reward scores", parts, reward.devices, _copies(reward))
        return replace(found, sections=(REWARD,))

    def _asleep(self) -> Iterator[StageMemory]:
        """Yield what models that share GPUs take of the machine's memory while others use these."""
        if not self.have.on_gpu:
            return
        held = [*self._held()]
        every = [numbers for _, numbers, _ in held]
        if self.trained:
            every.append(self._numbers(self.config.training.devices))
        sleepers = [
            at_most(name, size)
            for name, numbers, size in held
            if sum(bool(numbers & others) for others in every) > 1
        ]
        if sleepers:
            yield StageMemory(
                stage="models asleep",
                device="this machine's memory",
                has_bytes=self.have.ram,
                parts=tuple(sleepers),
                told="what does not fit is closed, and loaded anew",
            )

    def _held(self) -> Iterator[tuple[str, frozenset[int], int]]:
        """Yield each model that runs here: who it is, its GPUs, the bytes of all its copies."""
        for role, others in self._engines():
            engine = role.engine or EngineConfig()
            here = _copies(engine)
            if here is None:
                continue
            shape = self.shape(role)
            numbers = self._numbers(engine.devices)
            copies = len(numbers) // engine.tensor_parallel
            count = copies if here == "auto" else here
            size = self.hosting(role, shape).weight_bytes(shape) * engine.tensor_parallel
            yield ", ".join((role.name, *others)), numbers, max(1, count) * size
        replicas = _copies(self.config.reward)
        if replicas is not None and (reward := self._reward()):
            shape = self.shape(reward)
            numbers = self._numbers(self.config.reward.devices)
            count = len(numbers) if replicas == "auto" else replicas
            yield REWARD, numbers, round(count * shape.parameters * self.reward_number(shape))

    def _numbers(self, named: Numbers) -> frozenset[int]:
        return frozenset(range(len(self.have.cards)) if named == "auto" else named)

    def _on_device(
        self, stage: str, parts: Sequence[Holding], named: Numbers, replicas: AutoCount | None
    ) -> StageMemory:
        """Return a stage on each of its devices; without a GPU all copies share the memory."""
        have = self.have.of(named)
        copies = 1 if have.on_gpu or replicas in ("auto", None) else replicas
        return StageMemory(
            stage=stage,
            device=have.name,
            has_bytes=have.memory // copies,
            parts=tuple(parts),
        )


def _copies(part: EngineConfig | RewardConfig) -> AutoCount | None:
    """Return how many replicas of a model share this machine; None for none."""
    return replicas_here(part.place, part.replicas)


def _at_once(shape: ModelShape, hosting: Hosting, share: int, card: int) -> str:
    """Say how many requests of the whole context fit at once."""
    count = concurrency(shape, hosting, share_bytes=share, card_bytes=card)
    return f"{count:.0f} requests of {hosting.context} tokens at once"
