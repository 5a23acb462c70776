"""Named places at which a test makes this process fail: killed, stopped, out of disk space.

Each durable operation and each boundary of a stage calls `reach` with its name. Nothing happens
there unless a test has armed the name: by `armed`, or in a child process by the environment
variable: `LPFLOOP_FAILPOINT="part.rename.before#2:kill,part.sync.before:enospc"` means SIGKILL at
the second renaming of a part, and no space at each sync of one.
"""

import errno
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

VARIABLE = "LPFLOOP_FAILPOINT"

Hook = Callable[[str], None]

_hooks: list[Hook] = []


class FailpointError(ValueError):
    """An armed place that is not NAME or NAME#NTH, or an action that does not exist."""


def _signal(number: signal.Signals) -> Hook:
    return lambda _: os.kill(os.getpid(), number)


def _error(code: int) -> Hook:
    def fail(name: str) -> None:
        raise OSError(code, f"{os.strerror(code)} (failpoint {name})")

    return fail


_ACTIONS: Mapping[str, Hook] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "enospc": _error(errno.ENOSPC),
    "edquot": _error(errno.EDQUOT),
    "eio": _error(errno.EIO),
}


def reach(name: str) -> None:
    """Fail here if a test wants it.

    Raises:
        OSError: if an error is armed here.
    """
    for hook in tuple(_hooks):
        hook(name)


@contextmanager
def armed(actions: Mapping[str, str | Hook]) -> Generator[None]:
    """Let this process fail: at `NAME` each time, at `NAME#NTH` once.

    An action is `kill`, `stop`, `enospc`, `edquot`, `eio`, or a function of the failpoint's name.
    """
    hooks = [_trap(place, action) for place, action in actions.items()]
    _hooks.extend(hooks)
    try:
        yield
    finally:
        for hook in hooks:
            _hooks.remove(hook)


@contextmanager
def observed() -> Generator[list[str]]:
    """Yield a list that collects the names this process reaches, in order."""
    names = list[str]()
    hook = names.append
    _hooks.append(hook)
    try:
        yield names
    finally:
        _hooks[:] = [other for other in _hooks if other is not hook]


def arm_from_environment() -> None:
    """Arm what the environment names, for the process's life; called when imported.

    Raises:
        FailpointError: naming what is not a place or not an action.
    """
    for entry in filter(None, os.environ.get(VARIABLE, "").split(",")):
        place, _, action = entry.strip().rpartition(":")
        _hooks.append(_trap(place, action))


def _trap(place: str, action: str | Hook) -> Hook:
    match = re.fullmatch(r"([^#]+)(?:#([1-9][0-9]*))?", place)
    if match is None:
        raise FailpointError(f"{place!r} is not NAME or NAME#NTH, NTH counting from 1")
    if isinstance(action, str):
        if action not in _ACTIONS:
            raise FailpointError(f"failpoint action {action!r} is not one of {', '.join(_ACTIONS)}")
        action = _ACTIONS[action]
    wanted, nth = match[1], int(match[2]) if match[2] else None
    met = Counter[str]()

    def hook(name: str) -> None:
        if name == wanted:
            met[name] += 1
            if nth in (None, met[name]):
                action(name)

    return hook


arm_from_environment()
