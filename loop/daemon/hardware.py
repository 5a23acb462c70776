"""This machine's devices, memory, disks and versions, without loading a model library."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from ...configs.section import Devices as Numbers
from ...policies.devices import visible_gpus

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
    mounts = psutil.disk_partitions(all=True)
    return innermost(path, [(Path(mount.mountpoint), mount.fstype) for mount in mounts])


def innermost(path: Path, mounts: Iterable[tuple[Path, str]]) -> str:
    """Return the type of the innermost mount that holds `path`."""
    best, kind = -1, "unknown"
    for point, found in mounts:
        # Later mounts on the same point hide earlier ones.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found
    return kind
