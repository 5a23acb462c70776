"""The locks of a run; the kernel frees them however their holder ends.

One process writes: it holds `run.lock` for life. Readers share `readers.lock`; files that they may
use are removed only while no reader holds it.
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

    code = "LPF-215"


class FencedError(RuntimeError):
    """This process was overtaken: a later holder of the run has begun to write."""

    code = "LPF-216"


def acquire(folder: Path, what: str | None = None) -> int:
    """Lock the run (or `what`) at `folder`; return the lock's file descriptor.

    Raises:
        LockedError: if another process has it, naming that process, its host and its start.
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
    """Release a lock; the kernel drops it with its descriptor."""
    os.close(handle)


def admit_readers(folder: Path) -> None:
    """Create the file on which readers take their shared lock."""
    os.close(os.open(folder / READERS, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def share(folder: Path) -> int | None:
    """Keep the run's files from being removed; return the lock's descriptor, or None.

    It is None for a run without such a lock (a copy, a file system without locks), or if a removal
    takes too long: then a file may vanish under the reader, which reports it.
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
    """Yield whether the run is without readers; if so, none can start within the block."""
    handle = os.open(folder / READERS, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        free = False
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        yield free
    finally:
        os.close(handle)
