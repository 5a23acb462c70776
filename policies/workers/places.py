"""The places of a model's replicas: GPUs of this machine, or a Ray cluster.

On a CPU a replica is a separate process, which shares the cores with the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...configs.engines import EngineConfig
from ...configs.mistakes import ConfigError
from ...configs.schema import RewardConfig
from ...configs.section import (
    AutoCount,
    Devices,
    WorkerPlace,
)
from ..devices import Gpu, showing, visible_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """The GPUs of one replica, and their numbers among the visible ones; empty on a CPU."""

    numbers: tuple[int, ...] = ()
    gpus: tuple[Gpu, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables under which a process sees only this group."""
        return showing(self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The place of one replica: GPUs of this machine, or a Ray cluster."""

    place: WorkerPlace
    group: DeviceGroup = DeviceGroup()


def gpus_each(config: EngineConfig | RewardConfig) -> int:
    """Return how many GPUs one replica of a model takes."""
    return config.tensor_parallel if isinstance(config, EngineConfig) else 1


def cpus_each(config: EngineConfig | RewardConfig) -> int:
    """Return how many CPUs one replica of a model takes in a cluster."""
    return (config.cpu_threads if isinstance(config, EngineConfig) else None) or 1


def placements(
    config: EngineConfig | RewardConfig, section: str | None = None, *, function: bool = False
) -> tuple[Placement, ...]:
    """Return the place of each replica of a model.

    `function`: the model is a user's reward function. `section` is its name in errors.

    Raises:
        ConfigError: naming the setting that this machine, or a cluster, cannot follow.
    """
    groups = local_groups(config, section, function=function)
    if config.place == "local":
        return tuple(Placement(place="local", group=group) for group in groups)
    count = config.replicas
    if count == "auto":
        from .ray_cluster import ray_replicas

        count = ray_replicas(config, section)
    return (Placement(place="ray"),) * count


def local_groups(
    config: EngineConfig | RewardConfig, section: str | None = None, *, function: bool = False
) -> tuple[DeviceGroup, ...]:
    """Return the GPUs of each replica of a model on this machine; see `placements`.

    A function gets one replica unless configured otherwise: it may use all devices, or none.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    section = section or section_of(config)
    if config.place != "local":
        if config.devices == "auto":
            return ()
        raise ConfigError(
            f"{section}.devices={_join_numbers(config.devices)}: these are GPUs of this "
            f"machine, and "
            f"{section}.place puts no replica on it; leave one of them out"
        )
    count = config.replicas
    groups = device_groups(section, config.devices, count, gpus_each(config))
    if not function or count != "auto":
        return groups
    numbers = tuple(number for group in groups for number in group.numbers)
    return (DeviceGroup(numbers=numbers, gpus=tuple(gpu for g in groups for gpu in g.gpus)),)


def section_of(config: EngineConfig | RewardConfig) -> str:
    """Return the default name of a model's section in errors."""
    return "engine" if isinstance(config, EngineConfig) else "reward"


def device_groups(
    section: str,
    devices: Devices,
    replicas: AutoCount,
    tensor_parallel: int = 1,
    *,
    visible: Sequence[Gpu] | None = None,
) -> tuple[DeviceGroup, ...]:
    """Return the GPUs of each replica of a model that is configured in `section`.

    `visible` are the GPUs that may be used, by default all that this process sees.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    gpus = visible_gpus() if visible is None else visible
    if not gpus:
        return _on_cpu(section, devices, replicas)
    numbers = tuple(range(len(gpus))) if devices == "auto" else devices
    _require(section, numbers, len(gpus))
    if tensor_parallel > len(numbers):
        raise ConfigError(
            f"{section}.tensor_parallel={tensor_parallel}: it has {_count(len(numbers))}; lower "
            "it, or name more of them"
        )
    count = len(numbers) // tensor_parallel if replicas == "auto" else replicas
    if count * tensor_parallel > len(numbers):
        each = "" if tensor_parallel == 1 else f" of {tensor_parallel} GPUs each"
        raise ConfigError(
            f"{section}.replicas={count}: {count} replicas{each} need {count * tensor_parallel} "
            f"GPUs, and it has {_count(len(numbers))}; lower it, or name more of them"
        )
    return tuple(
        _group(numbers[start : start + tensor_parallel], gpus)
        for start in range(0, count * tensor_parallel, tensor_parallel)
    )


def _on_cpu(section: str, devices: Devices, replicas: AutoCount) -> tuple[DeviceGroup, ...]:
    if devices != "auto":
        raise ConfigError(
            f"{section}.devices={_join_numbers(devices)}: no GPU is visible here, and models "
            "run on the CPU; leave it out"
        )
    return (DeviceGroup(),) * (1 if replicas == "auto" else replicas)


def _require(section: str, numbers: tuple[int, ...], visible: int) -> None:
    """Refuse a list of GPUs that is empty, or names one twice or one that is not there."""
    if not numbers:
        raise ConfigError(f"{section}.devices=[]: it names no GPU; leave it out, or name some")
    twice = next((n for n in numbers if numbers.count(n) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"{section}.devices={_join_numbers(numbers)}: GPU {twice} occurs twice; give each once"
        )
    absent = next((n for n in numbers if n >= visible), None)
    if absent is not None:
        there = "GPU 0 alone" if visible == 1 else f"GPUs 0 to {visible - 1}"
        raise ConfigError(
            f"{section}.devices={_join_numbers(numbers)}: no GPU {absent}: "
            f"this process sees {there}"
        )


def _group(numbers: tuple[int, ...], gpus: Sequence[Gpu]) -> DeviceGroup:
    return DeviceGroup(numbers=numbers, gpus=tuple(gpus[number] for number in numbers))


def _join_numbers(numbers: Devices) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _count(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"
