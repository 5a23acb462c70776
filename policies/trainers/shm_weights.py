"""A folder in /dev/shm for the weights that a trainer passes to its sampler at every step.

Its name is a hash of the work folder, whose lock the trainer holds, so no other process uses it.
The files of a trainer that was killed stay in memory until its parent, or the next trainer in the
same work folder, removes them. Imports no model library.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- a folder of our own within it, private
CONTAINER = Path("/sys/fs/cgroup")


@contextmanager
def memory_folder(work: Path, size: int) -> Generator[Path | None]:
    """Yield an empty folder in memory for `size` bytes of weights of the training in `work`.

    None if it cannot be made, or if less than twice the size is free: while new weights are
    written, the sampler may still hold the old ones.
    """
    discard_memory(work)
    there = SHARED_MEMORY.is_dir()
    free = min(shutil.disk_usage(SHARED_MEMORY).free, _available_bytes()) if there else 0
    folder = folder_of(work)
    if free < 2 * size or not _made(folder):
        logger.info(
            "the sampler's weights go over the disk: %.1f GB, needed twice, do not fit into the "
            "%.1f GB of memory that are free in a private folder of %s",
            size / 1e9,
            free / 1e9,
            SHARED_MEMORY,
        )
        yield None
        return
    try:
        yield folder
    finally:
        discard_memory(work)


def _made(folder: Path) -> bool:
    """Make a private folder; return False if another user has taken its name."""
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        return False
    return True


def folder_of(work: Path) -> Path:
    """Return the folder in memory that belongs to a work folder."""
    name = hashlib.sha256(os.fsencode(work.resolve())).hexdigest()[:32]
    return SHARED_MEMORY / f"lpfloop-{os.getuid()}-{name}"


def discard_memory(work: Path) -> None:
    """Remove the folder in memory of the training in `work`, which has ended or is about to."""
    shutil.rmtree(folder_of(work), ignore_errors=True)


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
