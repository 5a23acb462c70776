"""Where the replicas of a model run: on which GPUs of this machine, or in a Ray cluster.

On a CPU a replica is a process of its own, which shares the cores with the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...configs.engines import EngineConfig
from ...configs.schema import RewardConfig
from ...configs.section import (
    AutoCount,
    ConfigError,
    Devices,
    WorkerPlace,
    WorkerPlaces,
    replicas_here,
)
from ..devices import Gpu, showing, visible_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """The GPUs of one replica, and their numbers among the visible ones; none on a CPU."""

    numbers: tuple[int, ...] = ()
    gpus: tuple[Gpu, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables under which a process sees this group alone."""
        return showing(self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one replica is: on GPUs of this machine, or in a Ray cluster."""

    place: WorkerPlace
    group: DeviceGroup = DeviceGroup()


def engine_placements(config: EngineConfig, section: str = "engine") -> tuple[Placement, ...]:
    """Return where each replica of an engine's model is, those of this machine first.

    Raises:
        ConfigError: naming the setting that this machine, or a cluster, cannot follow.
    """
    here = (Placement(place="local", group=group) for group in engine_groups(config, section))
    spans = config.tensor_parallel
    return (*here, *_in_ray(section, config.place, config.replicas, spans))


def engine_groups(config: EngineConfig, section: str = "engine") -> tuple[DeviceGroup, ...]:
    """Return the GPUs of each replica of a model that an engine runs here.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    count = _count_here(section, config.place, config.replicas, config.devices)
    if count is None:
        return ()
    return device_groups(section, config.devices, count, config.tensor_parallel)


def scorer_placements(config: RewardConfig, *, function: bool = False) -> tuple[Placement, ...]:
    """Return where each replica of a reward model is, or of a function of the user's own.

    Raises:
        ConfigError: naming the setting that this machine, or a cluster, cannot follow.
    """
    here = (
        Placement(place="local", group=group) for group in scorer_groups(config, function=function)
    )
    return (*here, *_in_ray("reward", config.place, config.replicas, 1))


def scorer_groups(config: RewardConfig, *, function: bool = False) -> tuple[DeviceGroup, ...]:
    """Return the GPU of each replica of a reward model, or of a function, that runs here.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    count = _count_here("reward", config.place, config.replicas, config.devices)
    return () if count is None else _scorer_groups(config, count, function=function)


def _count_here(
    section: str, place: WorkerPlaces, replicas: AutoCount, devices: Devices
) -> AutoCount | None:
    """Return how many replicas this machine has; None for none."""
    if not isinstance(place, str) and replicas != "auto":
        raise ConfigError(
            f"{section}.replicas={replicas}: {section}.place says how many there are in each "
            "place; leave one of them out"
        )
    count = replicas_here(place, replicas)
    if count is None and devices != "auto":
        raise ConfigError(
            f"{section}.devices={_said(devices)}: they are GPUs of this machine, where "
            f"{section}.place has no replica; leave one of them out"
        )
    return count


def _in_ray(
    section: str, place: WorkerPlaces, replicas: AutoCount, gpus: int
) -> tuple[Placement, ...]:
    """Return the replicas that are in a Ray cluster, of so many GPUs each."""
    wanted: Mapping[WorkerPlace, AutoCount]
    wanted = {place: replicas} if isinstance(place, str) else dict(place)
    count = wanted.get("ray", 0)
    if count == "auto":
        from .ray_cluster import ray_replicas

        count = ray_replicas(gpus, section)
    return (Placement(place="ray"),) * count


def _scorer_groups(
    config: RewardConfig, replicas: AutoCount, *, function: bool
) -> tuple[DeviceGroup, ...]:
    """Return the GPU of each replica on this machine.

    A function is not multiplied unless its user says so: it may use all of the devices, or none.
    """
    groups = device_groups("reward", config.devices, replicas)
    if not function or replicas != "auto":
        return groups
    numbers = tuple(number for group in groups for number in group.numbers)
    return (DeviceGroup(numbers=numbers, gpus=tuple(gpu for g in groups for gpu in g.gpus)),)


def device_groups(
    section: str,
    devices: Devices,
    replicas: AutoCount,
    tensor_parallel: int = 1,
    *,
    visible: Sequence[Gpu] | None = None,
) -> tuple[DeviceGroup, ...]:
    """Return the GPUs of each replica of a model that is configured in `section`.

    `visible` are the GPUs that may be used, by default those of this process.

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
            f"{section}.devices={_said(devices)}: no GPU is visible here, and models run on the "
            "CPU; leave it out"
        )
    return (DeviceGroup(),) * (1 if replicas == "auto" else replicas)


def _require(section: str, numbers: tuple[int, ...], visible: int) -> None:
    """Refuse a list of GPUs that is empty, or names one twice or one that is not there."""
    if not numbers:
        raise ConfigError(f"{section}.devices=[]: it names no GPU; leave it out, or name some")
    twice = next((n for n in numbers if numbers.count(n) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"{section}.devices={_said(numbers)}: GPU {twice} is named twice; name each once"
        )
    absent = next((n for n in numbers if n >= visible), None)
    if absent is not None:
        there = "GPU 0 alone" if visible == 1 else f"GPUs 0 to {visible - 1}"
        raise ConfigError(
            f"{section}.devices={_said(numbers)}: there is no GPU {absent}: this process sees "
            f"{there}"
        )


def _group(numbers: tuple[int, ...], gpus: Sequence[Gpu]) -> DeviceGroup:
    return DeviceGroup(numbers=numbers, gpus=tuple(gpus[number] for number in numbers))


def _said(numbers: Devices) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _count(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"
