"""Folders in /dev/shm for the weights that a trainer passes to its sampler at every step.

Each belongs to one work folder and to the process that locks it. The kernel releases the lock
however that process dies, but the files of a process that was killed stay in memory. So a trainer
that makes a folder, and a parent whose trainer has ended, remove the folders without a lock.
Imports no model library.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- a folder of our own within it, private
CONTAINER = Path("/sys/fs/cgroup")
LOCK = "lock"


@contextmanager
def memory_folder(work: Path, size: int) -> Generator[Path | None]:
    """Yield an empty folder in memory for `size` bytes of weights of the training in `work`.

    None if less than twice the size is free: while new weights are written, the sampler may
    still hold the old ones.
    """
    root = _root()
    discard_abandoned()
    free = min(shutil.disk_usage(root).free, _available_bytes()) if root else 0
    if root is None or free < 2 * size:
        logger.info(
            "the sampler's weights go over the disk: %.1f GB, needed twice, do not fit into the "
            "%.1f GB of memory that are free in a private folder of %s",
            size / 1e9,
            free / 1e9,
            SHARED_MEMORY,
        )
        yield None
        return
    folder = folder_of(root, work)
    with _folder_lock(root):
        folder.mkdir(mode=0o700)
        own = _lock(folder)
    try:
        yield folder
    finally:
        discard_memory(work)
        os.close(own)


def folder_of(root: Path, work: Path) -> Path:
    """Return the folder in memory that belongs to a work folder."""
    return root / hashlib.sha256(os.fsencode(work.resolve())).hexdigest()[:32]


def discard_memory(work: Path) -> None:
    """Remove the folder in memory of the training in `work`, which is about to end."""
    if root := _root():
        with _folder_lock(root):
            shutil.rmtree(folder_of(root, work), ignore_errors=True)


def discard_abandoned() -> None:
    """Remove the folders in memory whose processes have ended."""
    root = _root()
    if root is None:
        return
    with _folder_lock(root):
        for folder in [p for p in root.iterdir() if p.is_dir()]:
            with suppress(BlockingIOError):
                held = _lock(folder, fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)


def _lock(folder: Path, flag: int = 0) -> int:
    """Lock a folder by a file in it; return the descriptor that holds the lock."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flag)
    except BlockingIOError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _folder_lock(root: Path) -> Generator[None]:
    """Keep other processes from making or removing folders."""
    held = _lock(root)
    try:
        yield
    finally:
        os.close(held)


def _root() -> Path | None:
    """Return this user's private folder in memory, or None if it cannot be used."""
    root = SHARED_MEMORY / f"lpfloop-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        status = root.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
    return root if private and status.st_uid == os.getuid() else None


def _available_bytes() -> int:
    """Return how much memory can be used without swapping or exceeding a container's limit."""
    available = psutil.virtual_memory().available
    limit = CONTAINER / "memory.max"
    if not limit.is_file() or limit.read_text().strip() == "max":
        return available
    # A container's cached files count as its memory; the kernel drops those not used lately.
    counted = dict(line.split() for line in (CONTAINER / "memory.stat").read_text().splitlines())
    used = int((CONTAINER / "memory.current").read_text()) - int(counted["inactive_file"])
    return min(available, int(limit.read_text()) - used)
