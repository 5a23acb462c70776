"""The lock of a run: held by one process for life, and freed by the kernel however it ends."""

import fcntl
import os
import socket
import time
from pathlib import Path

LOCK = "run.lock"


class LockedError(RuntimeError):
    """Another process holds the run."""


def acquire(folder: Path) -> int:
    """Take the lock of the run at `folder`; return the descriptor that holds it.

    Raises:
        LockedError: if another process has it, naming that process, its host and since when.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 256, 0).decode(errors="replace").strip()
        os.close(handle)
        raise LockedError(
            f"run {folder.name} is in use by another process ({holder or 'pid unknown'})"
        ) from None
    since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
    return handle


def release(handle: int) -> None:
    """Let the run go."""
    os.close(handle)
