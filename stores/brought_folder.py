"""A verified copy, on this machine, of a folder that was published in a bucket."""

import fcntl
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from . import durable
from .objects import InBucket

FETCHING = "fetching"


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtFolder:
    """A copy that stays until it is released, or its process has ended."""

    folder: Path
    _lock: FileIO

    def release(self) -> None:
        """Allow another process to remove it."""
        self._lock.close()


def bring_folder(address: str, cache: Path) -> BroughtFolder:
    """Return a whole and unaltered copy of a folder in a bucket, downloaded if it is not there.

    Processes of the machine share the copies below `cache`: one downloads while the others wait.
    Before a download, copies that no process holds are removed.

    Raises:
        DamagedError: if the folder is not whole in the bucket.
        BucketError: if the bucket does not answer.
    """
    parent, _, name = address.rpartition("/")
    durable.make_folder(cache)
    with _lock(cache / FETCHING), ExitStack() as undone:
        lock = undone.enter_context(_lock_file(cache / name))
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not (cache / name).is_dir():
            _remove_unheld(cache)
        folder = InBucket(parent, cache).local_folder(cache / name)
        undone.pop_all()
    return BroughtFolder(folder=folder, _lock=lock)


def _remove_unheld(cache: Path) -> None:
    # Downloads that were killed.
    durable.sweep(cache)
    for copy in [path for path in cache.iterdir() if path.is_dir()]:
        with _lock_file(copy) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            durable.remove(copy)


@contextmanager
def _lock(path: Path) -> Generator[None]:
    with _lock_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock_file(path: Path) -> FileIO:
    """Open the file by which a path is locked; child processes do not inherit it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path.with_suffix(".lock"), flags, 0o600), "rb", buffering=0)
