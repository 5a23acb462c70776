"""Named places at which a test makes this process fail: killed, stopped, out of disk space.

Each durable operation and each boundary of a stage calls `reach` with its name. Nothing happens
there unless a test has armed the name: by `arm`, or in a child process by the environment
variable: `LPFLOOP_FAILPOINT="part.rename.before#2:kill,part.sync.before:enospc"` means SIGKILL at
the second renaming of a part, and no space at each sync of one.
"""

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

VARIABLE = "LPFLOOP_FAILPOINT"

Action = Callable[[str], object]
Hook = Callable[[str], Action | None]
"""Called with the name of a failpoint that was reached; returns the action there."""

_lock = threading.Lock()
_hooks: list[Hook] = []


class FailpointError(ValueError):
    """An armed place that is not NAME or NAME#NTH, or an unknown action."""


def _signal(number: signal.Signals) -> Action:
    return lambda _: os.kill(os.getpid(), number)


def _error(code: int) -> Action:
    def fail(name: str) -> None:
        raise OSError(code, f"{os.strerror(code)} (failpoint {name})")

    return fail


_ACTIONS: Mapping[str, Action] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "enospc": _error(errno.ENOSPC),
    "edquot": _error(errno.EDQUOT),
    "eio": _error(errno.EIO),
}
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

    def hook(name: str) -> None:
        names.append(name)

    with _hook([hook]):
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
        FailpointError: naming the invalid place or action.
    """
    for entry in filter(None, os.environ.get(VARIABLE, "").split(",")):
        place, _, action = entry.strip().rpartition(":")
        _hooks.append(_trap(place, action))


def _trap(place: str, action: str | Action) -> Hook:
    match = re.fullmatch(r"([^#]+)(?:#([1-9][0-9]*))?", place)
    if match is None:
        raise FailpointError(f"{place!r} is not NAME or NAME#NTH, NTH counting from 1")
    if isinstance(action, str):
        if action not in _ACTIONS:
            raise FailpointError(f"failpoint action {action!r} is not one of {', '.join(_ACTIONS)}")
        action = _ACTIONS[action]
    point, nth, found = match[1], int(match[2]) if match[2] else None, action
    met = count(1)

    def hook(name: str) -> Action | None:
        return found if name == point and nth in (None, next(met)) else None

    return hook


arm_from_environment()
