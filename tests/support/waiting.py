"""Waiting for what another process does, with a deadline instead of a guess."""

import time
from collections.abc import Callable

import psutil

POLL_S = 0.02
WAIT_S = 300.0
"""More than a very busy machine takes to start a process that imports torch."""


def wait_until(happened: Callable[[], bool], *, timeout_s: float = WAIT_S) -> None:
    """Return as soon as `happened`, or fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain"
        time.sleep(POLL_S)


def ended(pid: int) -> bool:
    """Whether a process is gone, or is but an entry that nobody has collected."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
