"""This machine's devices and disks, and whether it can do the configured run.

No model library is loaded. The GPUs assigned to the run's models are counted, and a Ray cluster is
queried; trainings must not ask for missing packages, or for two things that exclude another.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import psutil

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, EngineConfig, RewardConfig, RunConfig
from ...configs.section import Devices as Numbers
from ...policies.devices import installed_version, visible_gpus
from ...policies.engines.engine import EngineError
from ...policies.trainers.checks import refuse_missing_layers
from ...policies.trainers.job import ONLINE, Method, TrainingError
from ...policies.trainers.training_fit import fit_of
from ...policies.workers.engine_factory import engine_kind
from ...policies.workers.places import (
    DeviceGroup,
    local_groups,
    placements,
)
from ...policies.workers.ray_cluster import ray_request
from ...stores.installation import pip_install
from ..recipes.roles import NeededRole, trainings
from ..run.models import COMPLETION, REWARD, is_endpoint, locate_model

NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "fuse.gcsfuse", "fuse.glusterfs"),
        *("fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"),
        *("smbfs", "vboxsf", "virtiofs", "webdav", "wekafs"),
    }
)
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The memory of each GPU that the driver shows, and the machine's own, in bytes."""

    cards: tuple[int, ...]
    ram: int

    @property
    def on_gpu(self) -> bool:
        """Whether models run on a GPU."""
        return bool(self.cards)

    @property
    def memory(self) -> int:
        """The memory of a device that models run on: the smallest GPU's, or the machine's."""
        return min(self.cards, default=self.ram)

    def of(self, numbers: Numbers) -> "Devices":
        """Return the devices of these numbers; missing ones are ignored."""
        if numbers == "auto":
            return self
        there = (n for n in numbers if n < len(self.cards))
        return replace(self, cards=tuple(self.cards[n] for n in there) or self.cards)

    @property
    def name(self) -> str:
        """Return the name of a device."""
        return "a GPU" if self.cards else "this machine's memory"


def devices() -> Devices:
    """Return this machine's devices; GPUs count only if models would use them."""
    cards = tuple(gpu.memory for gpu in visible_gpus() if gpu.memory is not None)
    return Devices(cards=cards, ram=memory()[0])


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> tuple[int, int]:
    """Return the machine's memory and the available part of it, in bytes."""
    found = psutil.virtual_memory()
    return found.total, found.available


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk of a folder, existing or not: its free space, and its type of file system."""

    folder: Path
    free: int
    file_system: str
    writable: bool

    @property
    def remote(self) -> bool:
        """Whether another machine holds the files."""
        return self.file_system in NETWORK_FILE_SYSTEMS


def disk(folder: Path) -> Disk:
    """Look at the disk of `folder`, or of the nearest folder above that exists."""
    path = folder.absolute()
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    return Disk(
        folder=there,
        free=shutil.disk_usage(there).free,
        file_system=_file_system(there.resolve()),
        writable=there.is_dir() and os.access(there, os.W_OK | os.X_OK),
    )


def _file_system(path: Path) -> str:
    """Return the type of the innermost mount that holds `path`; later mounts hide earlier ones."""
    mounts = enumerate(psutil.disk_partitions(all=True))
    holding = [
        (len(Path(mount.mountpoint).parts), number, mount.fstype)
        for number, mount in mounts
        if path.is_relative_to(mount.mountpoint)
    ]
    return max(holding, default=(0, 0, "unknown"))[2]


LOCAL = ("vllm", "transformers")


def engine_section(role: str) -> str | None:
    """Return the section of a role's engine in the configuration; a pool's file has its models'."""
    if role == REWARD or role.startswith(COMPLETION):
        return None
    return f"{role}.engine"


def places_of(
    config: RunConfig, roles: Sequence[NeededRole]
) -> Mapping[str, tuple[DeviceGroup, ...]]:
    """Return the GPUs of each replica of the models that run here, by role.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
        EngineError: when nothing installed can run a model.
    """
    found: dict[str, tuple[DeviceGroup, ...]] = {}
    for role in roles:
        if role.engine is None:
            found[role.name] = local_groups(config.reward, function=names_function(role.model))
        elif role.named and engine_kind(locate_model(role.model), role.engine) in LOCAL:
            section = engine_section(role.name) or f"{role.name}: engine"
            found[role.name] = local_groups(role.engine, section)
    return found


def require_places(config: RunConfig, roles: Sequence[NeededRole]) -> None:
    """Refuse models whose GPUs are not there, and sampling elsewhere for an online method.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    try:
        places_of(config, roles)
    except EngineError as error:
        raise ConfigError(str(error)) from error
    if config.policy.engine.place != "local" and ONLINE & {*trainings(roles)}:
        raise ConfigError(
            f"policy.engine.place: {config.recipe.name} updates its sampler's weights at every "
            "step, on the trainer's machine; set local"
        )
    for section, part in in_ray(config, roles):
        ray_request(part, section)


def in_ray(
    config: RunConfig, roles: Sequence[NeededRole]
) -> Iterator[tuple[str, EngineConfig | RewardConfig]]:
    """Yield the sections of the models that have workers in a Ray cluster."""
    for role in roles:
        part = config.reward if role.name == REWARD else role.engine
        if part is not None and role.named and part.place == "ray":
            yield engine_section(role.name) or role.name, part


def require_replicas(config: RunConfig, path: str) -> None:
    """Refuse a number or place of replicas that a living run cannot have; `path` is the setting.

    Raises:
        ConfigError: naming the setting that cannot be followed.
    """
    section, _, name = path.rpartition(".")
    if name not in ("replicas", "place"):
        return
    found: object = attrgetter(section)(config)
    if isinstance(found, EngineConfig | RewardConfig):
        placements(found, section)


LEAST_RATE = 1e-5
"""The learning rate below which adapters hardly learn."""

KERNELS = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3"}
"""The distributions that hold implementations of attention."""


def require_fit(config: RunConfig) -> None:
    """Refuse trainings that ask for missing packages, or for two things that exclude another.

    Raises:
        ConfigError: naming the setting.
    """
    training = config.training
    if not training.lora.r and training.lora.quantise != "none":
        raise ConfigError(
            f"training.lora.quantise={training.lora.quantise} is for weights below adapters, and "
            "training.lora.r is 0: set training.lora.r, such as 16"
        )
    requirements = {
        "training.lora.quantise=nf4": ("bitsandbytes", training.lora.quantise == "nf4"),
        "training.optimizer=adamw_8bit": ("bitsandbytes", training.optimizer == "adamw_8bit"),
        "training.liger=true": ("liger-kernel", training.liger),
        f"training.attention={training.attention}": (
            KERNELS.get(training.attention, ""),
            training.attention in KERNELS,
        ),
    }
    for setting, (package, needed) in requirements.items():
        if not needed:
            continue
        if not devices().on_gpu:
            raise ConfigError(
                f"{setting} needs an NVIDIA GPU, and this machine shows none: leave it out"
            )
        if installed_version(package) is None:
            raise ConfigError(
                f"{setting} needs {package}, which is not installed: {pip_install(package)}, or "
                "leave it out"
            )


def require_layers(config: RunConfig, location: str) -> None:
    """Refuse adapters on layers that the policy does not have.

    Raises:
        ConfigError: naming those there are.
    """
    if is_endpoint(location) or not Path(location).is_dir():
        return
    try:
        refuse_missing_layers(fit_of(config.training), Path(location))
    except TrainingError as error:
        raise ConfigError(str(error)) from error


def faint_rates(config: RunConfig, methods: Sequence[Method]) -> Iterator[str]:
    """Yield a remark on each of these trainings whose steps are small for adapters."""
    if not config.training.lora.r:
        return
    for method in methods:
        rate: float = getattr(config.training, method).learning_rate
        if rate < LEAST_RATE:
            yield (
                f"training.{method}.learning_rate={rate:g} suits whole weights: adapters usually "
                "learn at about 1e-4"
            )
