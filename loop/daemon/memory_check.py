"""Whether a run's stages fit into this machine's devices, and which settings help if not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from ...configs.engines import EngineConfig
from ...configs.schema import ConfigError, RewardConfig, RunConfig
from ...configs.training import TrainingConfig
from ...policies.engines.engine import EngineError
from ...policies.memory.shapes import shape_of
from ...policies.memory.stage_memory import GIB, MARGIN, Remedy, StageMemory, gib
from ...policies.trainers.job import ONLINE, Method
from ..recipes.roles import NeededRole
from ..run.models import CRITIC
from .hardware import Devices, devices
from .machine_check import excluded
from .memory_stages import CANARY, TRAINS, MemoryStages, Shapes, engine_section

LEAST_HELP = 0.02
"""Settings that save a smaller share of a stage's need are not suggested."""
SHORTEST = 256
"""Tokens below which no length is proposed."""
MOST_NAMED = 4
"""The most settings that are suggested for a stage."""
RANK = 16
"""The rank of the adapters that are proposed."""
CRITIC_SHARE = 0.4
"""The share of a GPU that is proposed for a critic that shares it with a training."""

Settings = Mapping[str, Any]
"""Values by their paths in the configuration, set together."""


def memory_of(
    config: RunConfig,
    *,
    roles: Sequence[NeededRole],
    have: Devices | None = None,
    shapes: Shapes = shape_of,
) -> tuple[StageMemory, ...]:
    """Return each stage's need of device memory, with remedies if that may be too much.

    `roles` are the models that the run calls; `have` are the devices, by default this machine's;
    `shapes` returns the sizes of a model's folder.

    Raises:
        ConfigError: if the recipe, or a pool, cannot be used.
        EngineError: when nothing installed can run a model.
    """
    machine, sizes = have or devices(), cache(shapes)

    def stages(changed: RunConfig) -> Iterator[StageMemory]:
        now = [_with_engine(changed, role) for role in roles]
        return MemoryStages(config=changed, roles=now, have=machine, shapes=sizes).every()

    def remedies(stage: StageMemory) -> tuple[Remedy, ...]:
        found = list[Remedy]()
        for settings in _candidates(stage, config, machine):
            changed = _changed(config, settings)
            if not _is_possible(changed.training):
                continue
            now = next((s for s in stages(changed) if s.stage == stage.stage), stage)
            # A remedy counts by how much less the stage exceeds the device.
            before, after = (s.most_bytes - s.has_bytes for s in (stage, now))
            texts = tuple(f"{path}={_text(value)}" for path, value in settings.items())
            found.append(Remedy(settings=texts, saved_bytes=before - after, verdict=now.verdict))
        return _most_helpful(stage, found)

    return tuple(
        replace(stage, remedies=remedies(stage)) if stage.is_tight else stage
        for stage in stages(config)
    )


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
        stages = memory_of(planned, roles=roles)
    except EngineError as error:
        raise ConfigError(str(error)) from error
    impossible = [
        f"{stage.stage} needs {gib(stage.least_bytes)} GiB at least and has "
        f"{gib(stage.has_bytes)} ({stage.device}): {stage.advice()}"
        for stage in stages
        if stage.verdict == "does not fit"
    ]
    if impossible:
        raise ConfigError(
            f"this cannot fit into memory, by arithmetic (which may be {MARGIN:.0%} off): "
            f"{'; '.join(impossible)}; `lpfloop doctor` shows the terms, --set memory=warn tries it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """The most device memory that a run's trainings need, and which fit without recomputation."""

    most_bytes: int
    keeps_activations: frozenset[Method]


def training_memory(config: RunConfig, roles: Sequence[NeededRole]) -> TrainingMemory:
    """Return the need of a run's trainings on this machine; a whole device if unknown.

    Raises:
        ConfigError: if the recipe, or a pool, cannot be used.
        EngineError: when nothing installed can run a model.
    """
    stages = MemoryStages(config=config, roles=roles, have=devices(), shapes=cache(shape_of))
    needs = [s for s in stages.every() if s.stage.startswith((TRAINS, CANARY))]
    return TrainingMemory(
        most_bytes=max((s.has_bytes if s.unknown else s.most_bytes for s in needs), default=0),
        keeps_activations=frozenset(m for m in stages.methods if not stages.recomputes(m)),
    )


def _with_engine(config: RunConfig, role: NeededRole) -> NeededRole:
    """Return a role with the engine that a changed configuration gives it."""
    path = engine_section(role.name)
    return replace(role, engine=_at(config, path)) if path else role


def _is_possible(training: TrainingConfig) -> bool:
    """Whether these settings of a training go together."""
    try:
        TrainingConfig.model_validate(training.model_dump())
    except ValidationError:
        return False
    return not any(excluded(training))


def _most_helpful(stage: StageMemory, found: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Return the remedies to name: with which it fits, the least change first, then the others.

    Of the others, those that save most come first.
    """
    helpful = [r for r in found if r.saved_bytes > LEAST_HELP * stage.most_bytes]
    enough = [r for r in helpful if r.verdict == "fits"]
    others = [r for r in helpful if r.verdict != "fits"]
    ordered = sorted(enough, key=lambda r: (len(r.settings), r.saved_bytes))
    return (*ordered, *sorted(others, key=lambda r: -r.saved_bytes))[:MOST_NAMED]


def _candidates(stage: StageMemory, config: RunConfig, have: Devices) -> Iterator[Settings]:
    """Yield settings that could make a stage smaller; the arithmetic decides which do."""
    section = _at(config, stage.sections[0]) if stage.sections else None
    if isinstance(section, EngineConfig):
        found = _engine_candidates(stage, section, have)
    elif isinstance(section, RewardConfig):
        shorter = max(SHORTEST, section.max_length // 2)
        found = iter([("batch_size", max(1, section.batch_size // 4)), ("max_length", shorter)])
    elif section is not None:
        shorter = max(SHORTEST, section.max_length // 2)
        found = iter([("micro_batch_size", 1), ("max_length", shorter)])
    else:
        found = iter(())
    for name, value in found:
        yield {f"{path}.{name}": value for path in stage.sections}
    if stage.stage.startswith((TRAINS, CANARY)):
        yield from _training_candidates(stage, config, have)


def _engine_candidates(
    stage: StageMemory, engine: EngineConfig, have: Devices
) -> Iterator[tuple[str, Any]]:
    if SHORTEST <= stage.fitting < stage.context:
        yield "max_model_len", stage.fitting
    if not have.on_gpu:
        yield "kv_cache_gib", max(engine.kv_cache_gib, -(-stage.most_bytes // GIB))
        return
    yield from (("tensor_parallel", n) for n in (2, 4, 8) if n <= len(have.cards))
    yield "dtype", "bfloat16"
    yield "memory_utilization", max(0.95, engine.memory_utilization)
    if engine.kind != "transformers":
        yield "max_model_len", "auto"
        yield "vllm.kv_cache_dtype", "fp8"
        yield "vllm.quantization", "fp8"
        yield "vllm.max_num_seqs", 64


def _training_candidates(
    stage: StageMemory, config: RunConfig, have: Devices
) -> Iterator[Settings]:
    """Yield adapters, smaller numbers, and the training on more GPUs, or alone on one."""
    training = config.training
    whole, online = training.lora.r == 0, any(f"training.{m}" in stage.sections for m in ONLINE)
    reset = {"training.weights": "float32"} if training.weights == "bfloat16" else {}
    adapted: Settings = {"training.lora.r": RANK, **reset} if whole else {}
    others, cards = tuple(range(1, len(have.cards))), len(have.of(training.devices).cards)
    yield {"training.gradient_checkpointing": "always"}
    yield {"training.weights": "bfloat16"}
    yield {"training.reference": "previous"}
    if whole:
        yield adapted
        yield from ({**adapted, f"{path}.micro_batch_size": 1} for path in stage.sections)
    if have.on_gpu:
        yield {"training.optimizer": "adamw_8bit"}
        yield {**adapted, "training.lora.quantise": "nf4"}
    if cards * training.nodes > 1 and training.accelerate_config is None:
        divided: Settings = {
            "training.sharding": "fsdp2",
            "training.processes": "auto",
            **reset,
            **({"training.lora.quantise": "none"} if training.lora.quantise != "none" else {}),
            **({"training.optimizer": "adamw"} if training.optimizer != "adamw" else {}),
        }
        yield divided
        yield {**adapted, **divided}
    if not online:
        return
    share = 0.6 if stage.stage.endswith("sampler") else 0.15
    yield {f"{path}.sampler_memory": share for path in stage.sections}
    yield {"critic.engine.memory_utilization": CRITIC_SHARE}
    engines = (config.policy.engine.devices, config.critic.engine.devices)
    if others and training.devices == "auto" == engines[0]:
        apart: Settings = {"training.devices": (0,), "policy.engine.devices": others}
        yield apart
        yield {**adapted, **apart}
        if any(term.name == CRITIC for term in stage.terms) and engines[1] == "auto":
            yield {
                "training.devices": (0,),
                "policy.engine.devices": (0,),
                "critic.engine.devices": others,
            }


def _at(config: BaseModel, path: str) -> Any:
    """Return the section or value at a path; the configuration itself for no path."""
    for name in filter(None, path.split(".")):
        config = getattr(config, name)
    return config


def _changed(config: RunConfig, settings: Settings) -> RunConfig:
    """Return a configuration with other values at some paths."""
    for path, value in settings.items():
        parent, _, name = path.rpartition(".")
        section = _at(config, parent).model_copy(update={name: value})
        while parent:
            parent, _, name = parent.rpartition(".")
            section = _at(config, parent).model_copy(update={name: section})
        config = section
    return config


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(str, cast('tuple[object, ...]', value)))}]"
    return str(value)
