"""Named places at which a test makes this process fail: killed, stopped, out of disk space.

Each durable operation and each boundary of a stage calls `reach` with its name. Nothing happens
there unless a test has armed the name: by `arm`, or in a child process by the environment
variable: `LPFLOOP_FAILPOINT="part.rename.before#2:kill,part.sync.before:enospc"` means SIGKILL at
the second renaming of a part, and no space at each sync of one.
"""

import errno
import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

VARIABLE = "LPFLOOP_FAILPOINT"

Action = Callable[[str], object]
Hook = Callable[[str], Action | None]
"""Called with the name of a failpoint that was reached; returns the action there."""

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_ERRORS = {"enospc": errno.ENOSPC, "edquot": errno.EDQUOT, "eio": errno.EIO}
_lock = threading.Lock()
_hooks: list[Hook] = []
_rehearsing = 0
"""The number of rehearsals in progress, during which failpoints are ignored."""


@contextmanager
def ignore_failpoints() -> Generator[None]:
    """Ignore failpoints in the block, in all threads, because it is a rehearsal."""
    global _rehearsing  # noqa: PLW0603 -- as the hooks, it is the process's
    _rehearsing += 1
    try:
        yield
    finally:
        _rehearsing -= 1


def reach(name: str) -> None:
    """Fail here if a test has armed this name.

    Raises:
        OSError: if an error is armed here.
    """
    if _hooks and not _rehearsing:
        # All hooks count it before an action stops this thread.
        with _lock:
            actions = [hook(name) for hook in _hooks]
        for action in filter(None, actions):
            action(name)


@contextmanager
def arm(actions: Mapping[str, str | Action]) -> Generator[None]:
    """Make this process fail in the block: at `NAME` each time, at `NAME#NTH` once.

    An action is `kill`, `stop`, `enospc`, `edquot`, `eio`, or a function of the failpoint's name.
    """
    with _hook([_trap(place, action) for place, action in actions.items()]):
        yield


@contextmanager
def record_names() -> Generator[list[str]]:
    """Yield a list that collects the names this process reaches, in order."""
    names = list[str]()
    with _hook([names.append]):
        yield names


@contextmanager
def _hook(hooks: Sequence[Hook]) -> Generator[None]:
    with _lock:
        _hooks.extend(hooks)
    try:
        yield
    finally:
        with _lock:
            for hook in hooks:
                _hooks.remove(hook)


def arm_from_environment() -> None:
    """Arm the failpoints in the environment variable, for the process's life; called when imported.

    Raises:
        ValueError: for an unknown action.
    """
    for entry in filter(None, os.environ.get(VARIABLE, "").split(",")):
        place, _, action = entry.strip().rpartition(":")
        _hooks.append(_trap(place, action))


def _trap(place: str, action: str | Action) -> Hook:
    point, _, nth = place.partition("#")
    if isinstance(action, str) and action not in {*_SIGNALS, *_ERRORS}:
        raise ValueError(f"failpoint action {action!r} is unknown")
    met = count(1)

    def fail(name: str) -> None:
        if callable(action):
            action(name)
        elif action in _SIGNALS:
            os.kill(os.getpid(), _SIGNALS[action])
        else:
            code = _ERRORS[action]
            raise OSError(code, f"{os.strerror(code)} (failpoint {name})")

    def hook(name: str) -> Action | None:
        return fail if name == point and nth in ("", str(next(met))) else None

    return hook


arm_from_environment()
