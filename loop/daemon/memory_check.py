"""Whether a run's stages fit into the memory of this machine's devices, before anything is loaded.

The formulas are in `policies.memory`; here they meet the configuration: which models a run asks
(`recipes.roles`), what it trains (`recipes.smoke_needs`), and what else is on a device meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from ...configs.engines import EngineConfig
from ...configs.recipes import Annotated, Graded
from ...configs.schema import ConfigError, RewardConfig, RunConfig
from ...configs.training import TrainingConfig
from ...policies.engines.engine import EngineError
from ...policies.memory.shapes import shape_of
from ...policies.memory.verdicts import GIB, UNCERTAINTY, Arithmetic, Relief, StageMemory, gib
from ...policies.trainers.job import ONLINE
from ..recipes.roles import NeededRole, needed_roles
from ..recipes.smoke_needs import trainings
from ..run.models import CRITIC, is_rewarded
from .engine_stages import EngineStages, Shapes, engine_section
from .hardware import Devices, devices
from .training_check import excluded
from .training_stages import TrainingStages

LEAST_HELP = 0.02
"""The share of a stage's need that a setting must save to be named."""

SHORTEST = 256
"""Tokens below which no length is proposed."""

MOST_NAMED = 4
"""Settings that a stage is told with."""

RANK = 16
"""The rank of the adapters that are proposed."""

TRAINED = ("train by", "measure the canary")
"""How the stages begin that a training's processes are in."""

SAMPLING = frozenset(f"training.{method}" for method in ONLINE)
"""Trainings that sample: they can do so on other GPUs, and do not divide what carries adapters."""

BESIDE = 0.4
"""The share of a GPU that is proposed for a critic beside a training."""

SPANS = (2, 4, 8)
"""GPUs that a model may be proposed to span."""

_Staged = Callable[[RunConfig], Mapping[str, StageMemory]]


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

    def stages(changed: RunConfig) -> Mapping[str, StageMemory]:
        now = [_under(changed, role) for role in asked]
        return {s.stage: s for s in _stages(changed, now, machine, shapes)}

    def relieved(stage: StageMemory) -> StageMemory:
        if stage.verdict in ("fits", "not known"):
            return stage
        found = _reliefs(stage, config, machine, stages)
        return replace(stage, reliefs=_helpful(stage, found))

    return Arithmetic(stages=tuple(relieved(s) for s in stages(config).values()))


def stages_of(config: RunConfig, *, have: Devices, shapes: Shapes) -> Iterator[StageMemory]:
    """Yield what each stage of a run needs, without what would help."""
    yield from _stages(config, needed_roles(config), have, shapes)


def training_bytes(
    config: RunConfig, roles: Sequence[NeededRole], have: Devices | None = None
) -> int:
    """Return what a run's trainings need of a device at the most; all of it where unknown.

    Raises:
        ConfigError: if the recipe, or a pool, cannot be used.
        EngineError: when nothing installed can run a model.
    """
    machine = have or devices()
    stages = _stages(config, roles, machine, shape_of)
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
) -> Iterator[StageMemory]:
    methods = trainings(config) if config.iterations > 0 else ()
    if ONLINE & {*methods} and not _scores(config):
        methods = ("reward", *methods)
    trained = bool({*methods} - {"reward"})
    engines = EngineStages(config=config, have=have, shapes=shapes, roles=roles, trained=trained)
    yield from engines.stages()
    if methods and any(role.name == "policy" for role in roles):
        yield from TrainingStages(engines=engines, methods=methods).stages()


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
        if not _can_be(changed.training):
            continue
        now = stages(changed).get(stage.stage, stage)
        # What counts is by how much the stage is nearer to what the device has.
        before, after = (s.most_bytes - s.has_bytes for s in (stage, now))
        yield Relief(
            settings=tuple(f"{path}={_said(value)}" for path, value in settings.items()),
            saved_bytes=before - after,
            verdict=now.verdict,
        )


def _can_be(training: TrainingConfig) -> bool:
    """Whether these settings of a training go together."""
    try:
        TrainingConfig.model_validate(training.model_dump())
    except ValidationError:
        return False
    return not any(excluded(training))


def _helpful(stage: StageMemory, reliefs: Iterable[Relief]) -> tuple[Relief, ...]:
    """Return the settings to name: those after which it fits, the least change first, then others.

    Of the others, those that save most come first.
    """
    found = [r for r in reliefs if r.saved_bytes > LEAST_HELP * stage.most_bytes]
    enough = [r for r in found if r.verdict == "fits"]
    others = [r for r in found if r.verdict != "fits"]
    ordered = sorted(enough, key=lambda r: (len(r.settings), r.saved_bytes))
    return (*ordered, *sorted(others, key=lambda r: -r.saved_bytes))[:MOST_NAMED]


def reliefs_of(
    stage: StageMemory, config: RunConfig, have: Devices
) -> Iterator[Mapping[str, object]]:
    """Give the settings that could make a stage smaller: values by their paths, set together."""
    for leaf, value in _changes(stage, config, have):
        yield {f"{section}.{leaf}": value for section in stage.sections}
    if stage.stage.startswith(TRAINED):
        yield from _fits_of(stage, config, have)
    if stage.sections == ("training.dpo",) and config.training.reference == "initial":
        yield {"training.reference": "previous"}


def _fits_of(
    stage: StageMemory, config: RunConfig, have: Devices
) -> Iterator[Mapping[str, object]]:
    """Give how a training could fit otherwise: with adapters, in smaller numbers, on more GPUs."""
    training = config.training
    whole = training.lora.r == 0
    halved = training.weights == "bfloat16"
    plain: dict[str, object] = {"training.weights": "float32"} if halved else {}
    adapted: dict[str, object] = {"training.lora.r": RANK, **plain} if whole else {}
    quantised: dict[str, object] = {**adapted, "training.lora.quantise": "nf4"}
    divided: dict[str, object] = {"training.sharding": "fsdp2", "training.processes": "auto"}
    divided |= plain | _unlike_sharding(training)
    yield {"training.recompute": "always"}
    yield {"training.weights": "bfloat16"}
    if whole:
        yield adapted
        yield from ({**adapted, f"{section}.micro_batch_size": 1} for section in stage.sections)
    if have.on_gpu:
        yield {"training.optimizer": "adamw_8bit"}
        yield quantised
    cards = len(have.of(training.devices).cards)
    several = cards * training.nodes > 1
    more: dict[str, object] = {}
    if SAMPLING & {*stage.sections}:
        if cards > 1 and training.devices == "auto" == config.policy.engine.devices:
            others = tuple(range(1, len(have.cards)))
            more = {"training.devices": (0,), "policy.engine.devices": others}
        if several and whole:
            yield divided
    elif several and training.accelerate_config is None:
        more = divided
    if any(part.name == CRITIC for part in stage.parts):
        yield from _critic_apart(config, have)
    if more:
        yield more
    if more and adapted:
        yield {**adapted, **more}


def _critic_apart(config: RunConfig, have: Devices) -> Iterator[Mapping[str, object]]:
    """Give how a critic could leave room to the training that it rewards."""
    critic = config.critic.engine
    if have.on_gpu and critic.memory_utilization > BESIDE:
        yield {"critic.engine.memory_utilization": BESIDE}
    named = (config.training.devices, config.policy.engine.devices, critic.devices)
    if len(have.cards) > 1 and named == ("auto",) * 3:
        others = tuple(range(1, len(have.cards)))
        first: dict[str, object] = {"training.devices": (0,), "policy.engine.devices": (0,)}
        yield {**first, "critic.engine.devices": others}


def _unlike_sharding(training: TrainingConfig) -> dict[str, object]:
    """Return what must be set back for a training to be divided by FSDP2."""
    quantised: dict[str, object] = {"training.lora.quantise": "none"}
    narrow: dict[str, object] = {"training.optimizer": "adamw"}
    return {
        **(quantised if training.lora.quantise != "none" else {}),
        **(narrow if training.optimizer != "adamw" else {}),
    }


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
        if stage.sections[0] in SAMPLING:
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
    if isinstance(value, tuple):
        return f"[{','.join(map(str, cast('tuple[object, ...]', value)))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
