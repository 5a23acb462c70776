"""The stages of a run in which an engine samples or judges, or the reward model scores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...configs.engines import EngineConfig, VLLMConfig
from ...configs.own_function import names_function
from ...configs.schema import RunConfig
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
from ...policies.memory.shapes import FLOAT32, ModelShape, UnknownShapeError
from ...policies.memory.verdicts import GIB, Holding, StageMemory, fixed
from ...policies.workers.open import engine_kind
from ..recipes.roles import COMPLETION, NeededRole
from ..run.models import REWARD, located
from .hardware import Devices

Shapes = Callable[[Path], ModelShape]
VLLM, TRANSFORMERS = "vllm", "transformers"
DEFAULT_CONTEXT = 2048
"""The context of a model whose config.json names none."""


def engine_section(role: str) -> str | None:
    """Return where the configuration has a role's engine; a pool's file has its models'."""
    if role == REWARD or role.startswith(COMPLETION):
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
            try:
                for found in self._engine(role, stage):
                    yield replace(found, sections=sections)
            except UnknownShapeError as error:
                yield self.unknown(stage, str(error))
        if reward := self._reward():
            try:
                yield self._scoring(reward)
            except UnknownShapeError as error:
                yield self.unknown("reward scores", str(error))

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
        return shape.as_trained() if role.name == "policy" and self.trained else shape

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
            yield replace(self._on_device(stage, parts), context=hosting.context)
        elif self.have.on_gpu:
            yield self._vllm(stage, shape, hosting, engine)
        else:
            yield from self._vllm_on_cpu(stage, shape, hosting, engine)

    def _vllm(
        self, stage: str, shape: ModelShape, hosting: Hosting, engine: EngineConfig
    ) -> StageMemory:
        card = self.have.memory
        share = round(card * engine.memory_utilization)
        parts = vllm_parts(shape, hosting, card)
        room = share - sum(part.most_bytes for part in parts if part.name != REQUEST)
        return StageMemory(
            stage=stage,
            device=f"vLLM's share of {self.have.name}",
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
            stage=f"{stage}: cache",
            device="engine.kv_cache_gib",
            has_bytes=cache,
            parts=(fixed(REQUEST, request),),
            fitting=longest_context(shape, hosting, room_bytes=cache),
            told=told,
            context=hosting.context,
        )
        parts = [fixed("weights", hosting.weight_bytes(shape)), fixed("cache", cache)]
        yield self._on_device(stage, parts)

    def _scoring(self, role: NeededRole) -> StageMemory:
        shape, reward = self.shape(role), self.config.reward
        on_gpu = self.have.on_gpu
        parts = scorer_parts(
            shape,
            number_bytes=shape.saved_number_bytes if on_gpu else FLOAT32,
            rows=reward.batch_size,
            length=min(reward.max_length, shape.context or reward.max_length),
            on_gpu=on_gpu,
        )
        return replace(self._on_device("reward scores", parts), sections=(REWARD,))

    def _on_device(self, stage: str, parts: Sequence[Holding]) -> StageMemory:
        return StageMemory(
            stage=stage,
            device=self.have.name,
            has_bytes=self.have.memory,
            parts=tuple(parts),
        )


def _at_once(shape: ModelShape, hosting: Hosting, share: int, card: int) -> str:
    """Say how many requests of the whole context fit at once."""
    count = concurrency(shape, hosting, share_bytes=share, card_bytes=card)
    return f"{count:.0f} requests of {hosting.context} tokens at once"
