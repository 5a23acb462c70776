"""Whether a run's stages fit into the memory of this machine's devices, before anything is loaded.

The formulas are in `policies.memory`; here they meet the configuration: which models a run asks
(`recipes.roles`), what it trains (`recipes.smoke_needs`), and what else is on a device meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from ...configs.engines import EngineConfig
from ...configs.recipes import Annotated, Graded
from ...configs.schema import ConfigError, RewardConfig, RunConfig
from ...policies.engines.engine import EngineError
from ...policies.memory.shapes import shape_of
from ...policies.memory.sharding import STAGES, Sharding
from ...policies.memory.verdicts import GIB, UNCERTAINTY, Arithmetic, Relief, StageMemory, gib
from ...policies.trainers.trainer_job import ONLINE
from ..recipes.roles import NeededRole, needed_roles
from ..recipes.smoke_needs import trainings
from ..run.models import is_rewarded
from .engine_stages import EngineStages, Shapes, engine_section
from .hardware import Devices, devices
from .training_stages import TrainingStages

LEAST_HELP = 0.02
"""The share of a stage's need that a setting must save to be named."""

SHORTEST = 256
"""Tokens below which no length is proposed."""

TRAINED = ("train by", "measure the canary")
"""How the stages begin that a training's processes are in."""

SPANS = (2, 4, 8)
"""GPUs that a model may be proposed to span."""

_Staged = Callable[[RunConfig, Sharding | None], Mapping[str, StageMemory]]


def memory_of(
    config: RunConfig,
    *,
    roles: Sequence[NeededRole] | None = None,
    have: Devices | None = None,
    shapes: Shapes = shape_of,
) -> Arithmetic:
    """Return what each stage of a run needs of a device, and what helps where it is too much.

    `roles` are the models that are asked, by default those of the recipe; `have` are the devices,
    by default this machine's; `shapes` gives the sizes of a model's folder.

    Raises:
        ConfigError: if the recipe, or a pool, cannot be used.
        EngineError: when nothing installed can run a model.
    """
    asked = needed_roles(config) if roles is None else roles
    machine = have or devices()

    def stages(changed: RunConfig, sharding: Sharding | None) -> Mapping[str, StageMemory]:
        now = [_under(changed, role) for role in asked]
        return {s.stage: s for s in _stages(changed, now, machine, shapes, sharding)}

    def relieved(stage: StageMemory) -> StageMemory:
        if stage.verdict in ("fits", "not known"):
            return stage
        found = _reliefs(stage, config, machine, stages)
        return replace(stage, reliefs=_helpful(stage, found))

    return Arithmetic(stages=tuple(relieved(s) for s in stages(config, None).values()))


def training_bytes(
    config: RunConfig, roles: Sequence[NeededRole], have: Devices | None = None
) -> int:
    """Return what a run's trainings need of a device at the most; all of it where unknown.

    Raises:
        ConfigError: if the recipe, or a pool, cannot be used.
        EngineError: when nothing installed can run a model.
    """
    machine = have or devices()
    stages = _stages(config, roles, machine, shape_of, None)
    needs = (s for s in stages if s.stage.startswith(TRAINED))
    return max((s.has_bytes if s.unknown else s.most_bytes for s in needs), default=0)


def require_memory(config: RunConfig, roles: Sequence[NeededRole], *, trains: bool = True) -> None:
    """Refuse a run one of whose stages cannot fit, unless `memory` says otherwise.

    `trains`: the run's trainings are part of it.

    Raises:
        ConfigError: naming the stage, what it needs, and the settings that would help.
    """
    if config.memory != "refuse":
        return
    planned = config if trains else config.model_copy(update={"iterations": 0})
    try:
        arithmetic = memory_of(planned, roles=roles)
    except EngineError as error:
        raise ConfigError(str(error)) from error
    impossible = arithmetic.of("does not fit")
    if impossible:
        told = "; ".join(
            f"{stage.stage} needs {gib(stage.least_bytes)} GiB at the least and has "
            f"{gib(stage.has_bytes)} ({stage.device}): {stage.advice()}"
            for stage in impossible
        )
        raise ConfigError(
            f"this cannot fit into memory, by arithmetic (which is {UNCERTAINTY:.0%} off at most): "
            f"{told}; `lpfloop doctor` shows the parts, --set memory=warn tries all the same"
        )


def _under(config: RunConfig, role: NeededRole) -> NeededRole:
    """Return a role with the engine that a changed configuration gives it."""
    path = engine_section(role.name)
    return replace(role, engine=_at(config, path)) if path else role


def _stages(
    config: RunConfig,
    roles: Sequence[NeededRole],
    have: Devices,
    shapes: Shapes,
    sharding: Sharding | None,
) -> Iterator[StageMemory]:
    methods = trainings(config) if config.iterations > 0 else ()
    if ONLINE & {*methods} and not _scores(config):
        methods = ("reward", *methods)
    trained = bool({*methods} - {"reward"})
    engines = EngineStages(config=config, have=have, shapes=shapes, roles=roles, trained=trained)
    yield from engines.stages()
    if methods and any(role.name == "policy" for role in roles):
        yield from TrainingStages(engines=engines, methods=methods, sharding=sharding).stages()


def _scores(config: RunConfig) -> bool:
    """Whether an online method's reward is there, so that none is trained for it."""
    return is_rewarded(config) or not isinstance(config.recipe, Annotated | Graded)


def _reliefs(
    stage: StageMemory, config: RunConfig, have: Devices, stages: _Staged
) -> Iterator[Relief]:
    """Give what would make a stage smaller, by computing it anew under each setting."""
    for settings in reliefs_of(stage, config, have):
        changed = config
        for path, value in settings.items():
            changed = _with(changed, path, value)
        told = ", ".join(f"{path}={_said(value)}" for path, value in settings.items())
        yield _relief(stage, told, stages(changed, None))
    if stage.shardable and config.training.accelerate_config is None and len(have.cards) > 1:
        divided = Sharding(processes=len(have.cards), divided=STAGES[3])
        told = f"training.accelerate_config with FSDP over {len(have.cards)} GPUs"
        yield _relief(stage, told, stages(config, divided))


def _relief(stage: StageMemory, told: str, found: Mapping[str, StageMemory]) -> Relief:
    """Return by how much the stage under other settings is nearer to what the device has."""
    now = found.get(stage.stage, stage)
    before, after = (s.most_bytes - s.has_bytes for s in (stage, now))
    return Relief(setting=told, saved_bytes=before - after)


def _helpful(stage: StageMemory, reliefs: Iterable[Relief]) -> tuple[Relief, ...]:
    found = [r for r in reliefs if r.saved_bytes > LEAST_HELP * stage.most_bytes]
    return tuple(sorted(found, key=lambda relief: -relief.saved_bytes))


def reliefs_of(
    stage: StageMemory, config: RunConfig, have: Devices
) -> Iterator[Mapping[str, object]]:
    """Give the settings that could make a stage smaller: values by their paths, set together."""
    for leaf, value in _changes(stage, config, have):
        yield {f"{section}.{leaf}": value for section in stage.sections}
    if stage.sections == ("training.dpo",) and config.training.reference == "initial":
        yield {"training.reference": "previous"}


def _changes(stage: StageMemory, config: RunConfig, have: Devices) -> Iterator[tuple[str, object]]:
    """Give the values that the sections of a stage could have instead."""
    section = _at(config, stage.sections[0]) if stage.sections else None
    if isinstance(section, EngineConfig):
        if SHORTEST <= stage.fitting < stage.context:
            yield "max_model_len", stage.fitting
        if have.on_gpu:
            yield from (("tensor_parallel", n) for n in SPANS if n <= len(have.cards))
            yield "dtype", "bfloat16"
            if section.kind != "transformers":
                yield "max_model_len", "auto"
                yield from (("vllm.kv_cache_dtype", "fp8"), ("vllm.quantization", "fp8"))
                yield "vllm.max_num_seqs", 64
            yield "memory_utilization", max(0.95, section.memory_utilization)
        else:
            yield "kv_cache_gib", max(section.kv_cache_gib, -(-stage.most_bytes // GIB))
    elif isinstance(section, RewardConfig):
        yield "batch_size", max(1, section.batch_size // 4)
        yield "max_length", max(SHORTEST, section.max_length // 2)
    elif section is not None:
        yield "micro_batch_size", 1
        yield "max_length", max(SHORTEST, section.max_length // 2)
        if stage.sections[0] in ("training.ppo", "training.quark"):
            yield "sampler_memory", 0.6 if "sampler" in stage.stage else 0.15


def _at(config: BaseModel, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def _with(config: RunConfig, path: str, value: object) -> RunConfig:
    """Return a configuration with another value at a path."""
    parent, _, name = path.rpartition(".")
    changed = (_at(config, parent) if parent else config).model_copy(update={name: value})
    return _with(config, parent, changed) if parent else changed


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
