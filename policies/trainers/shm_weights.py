"""Folders in /dev/shm for the weights that a trainer passes to its sampler at every step.

Each belongs to one work folder and to the process that holds its lock, which the kernel releases
however that process dies. The files of a process that was killed stay in memory. So a trainer that
makes a folder, and a parent whose trainer has ended, remove the folders that nobody holds. Imports
no model library.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- a folder of our own within it, private
MEMORY = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")
LOCK = "lock"


@contextmanager
def memory_folder(work: Path, size: int) -> Generator[Path | None]:
    """Yield an empty folder in memory for `size` bytes of weights of the training in `work`.

    None if there is no room for twice the size: while new weights are written, the sampler may
    still hold the old ones.
    """
    root = _root()
    if root is None:
        logger.info(
            "the sampler's weights go over the disk: no private folder in %s", SHARED_MEMORY
        )
        yield None
        return
    discard_abandoned()
    free = min(shutil.disk_usage(root).free, _available_bytes())
    if free < 2 * size:
        logger.info(
            "the sampler's weights go over the disk: %.1f GB, needed twice, do not fit into the "
            "%.1f GB of memory that are free", size / 1e9, free / 1e9,
        )  # fmt: skip
        yield None
        return
    folder = folder_of(root, work)
    with _locked(root):
        folder.mkdir(mode=0o700)
        own = _open_lock(folder)
        fcntl.flock(own, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        with _locked(root):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(own)


def folder_of(root: Path, work: Path) -> Path:
    """Return the folder in memory that belongs to a work folder."""
    return root / hashlib.sha256(os.fsencode(work.resolve())).hexdigest()[:32]


def discard_memory(work: Path) -> None:
    """Remove the folder in memory of the training in `work`, which is about to end."""
    root = _root()
    if root is not None:
        with _locked(root):
            shutil.rmtree(folder_of(root, work), ignore_errors=True)


def discard_abandoned() -> None:
    """Remove the folders in memory whose processes have ended."""
    root = _root()
    if root is None:
        return
    with _locked(root):
        for folder in [p for p in root.iterdir() if p.is_dir()]:
            held = _open_lock(folder)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                pass
            finally:
                os.close(held)


def _open_lock(folder: Path) -> int:
    return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _root() -> Path | None:
    """Return this user's private folder in memory; None if there is none."""
    root = SHARED_MEMORY / f"lpfloop-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        status = root.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
    return root if private and status.st_uid == os.getuid() else None


@contextmanager
def _locked(root: Path) -> Generator[None]:
    """Keep other processes from making or removing folders."""
    held = _open_lock(root)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _available_bytes() -> int:
    """Return how much memory can be used without swapping or exceeding a container's limit."""
    available = int(_field(MEMORY, "MemAvailable:")) * 1024
    limit = CONTAINER / "memory.max"
    if not limit.is_file() or limit.read_text().strip() == "max":
        return available
    # A container's cached files count as its memory; the kernel drops those not used lately.
    spare = int(_field(CONTAINER / "memory.stat", "inactive_file"))
    used = int((CONTAINER / "memory.current").read_text())
    return min(available, int(limit.read_text()) - used + spare)


def _field(path: Path, name: str) -> str:
    """Return the second word of the line of a file that begins with `name`; 0 without one."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return next((line.split()[1] for line in lines if line.split()[:1] == [name]), "0")
