"""The locks of a run, freed by the kernel however their holder ends.

One process writes: it holds `run.lock` for life. Whoever reads shares `readers.lock`; files that a
reader may have heard of are removed only while nobody does.
"""

import fcntl
import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "run.lock"
READERS = "readers.lock"
PATIENCE_S, POLL_S = 1.0, 0.01


class LockedError(RuntimeError):
    """Another process holds the run."""


def acquire(folder: Path, what: str | None = None) -> int:
    """Take the lock of the run, or of `what` lies, at `folder`; return the descriptor of it.

    Raises:
        LockedError: if another process has it, naming that process, its host and since when.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 256, 0).decode(errors="replace").strip()
        os.close(handle)
        name = what or f"run {folder.name}"
        raise LockedError(
            f"{name} is in use by another process ({holder or 'pid unknown'})"
        ) from None
    since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
    return handle


def release(handle: int) -> None:
    """Let the run go."""
    os.close(handle)


def admit_readers(folder: Path) -> None:
    """Make the file that readers share."""
    os.close(os.open(folder / READERS, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def share(folder: Path) -> int | None:
    """Keep the run's files from being removed; return the descriptor that does, or None.

    None is for a run without such a lock (a copy, a file system without locks), or if who removes
    files does not let go of it in time: then a file may vanish under a reader, who is told so.
    """
    try:
        handle = os.open(folder / READERS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() > end:
                os.close(handle)
                return None
            time.sleep(POLL_S)
        else:
            return handle


@contextmanager
def unread(folder: Path) -> Generator[bool]:
    """Tell whether nobody reads the run; while the block lasts nobody begins to."""
    handle = os.open(folder / READERS, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        free = False
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        yield free
    finally:
        os.close(handle)
