"""Named places at which a test makes this process fail: killed, stopped, out of disk space.

Each durable operation and each boundary of a stage calls `reach` with a name declared here.
Nothing happens there unless the name is armed: by `armed` in a test, or in a child process by the
environment variable: `LPFLOOP_FAILPOINT="part.rename.before#2:kill,part.sync.before:enospc"` means
SIGKILL at the second renaming of a part, and no space at each sync of one.
"""

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

VARIABLE = "LPFLOOP_FAILPOINT"

_STORE = {
    "create": "creating the temporary file of {}",
    "write": "writing the bytes of {}",
    "sync": "fsync of {}",
    "rename": "moving {} to its place",
    "sync_folder": "fsync of the folder that holds {}",
}
# What durable.py publishes, and by which operations; each gets `.before` and `.after`.
_DURABLE = {
    "part": ("a part", _STORE),
    "pack": ("a pack", _STORE),
    "superseded": ("a part whose rows lie in a pack now", {"unlink": "removing {}"}),
    "file": ("a small file", _STORE),
    "pages": ("the hashes of a journal's pages", _STORE),
    "backup": ("a backup of a journal", _STORE),
    "mended": ("a journal's file in the place of a damaged one", _STORE),
    "manifest": (
        "the manifest of a published folder",
        {name: _STORE[name] for name in ("create", "write", "sync", "rename")},
    ),
    "published": (
        "a published folder",
        {
            "sync": "fsync of a file of {}",
            "sync_folder": "fsync of a folder of {}, or of the one it is moved to",
            "rename": _STORE["rename"],
        },
    ),
    "link": (
        "a file or folder of another run",
        {
            "link": "giving {} a second name",
            "copytree": "giving the files of {} a second name each",
            "sync_folder": _STORE["sync_folder"],
        },
    ),
    "draft": (
        "a file that another library wrote",
        {name: _STORE[name] for name in ("sync", "rename", "sync_folder")},
    ),
    "folder": (
        "a new folder",
        {"mkdir": "making {}", "sync_folder": _STORE["sync_folder"]},
    ),
    "temporary": (
        "a temporary file or folder, left over or moved out of its place",
        {"unlink": "removing {} (a file)", "rmtree": "removing {} (a folder)"},
    ),
    "quarantine": (
        "a damaged file or folder",
        {"rename": "moving {} aside", "sync_folder": "fsync of a folder that held or holds {}"},
    ),
    "retired": (
        "a file or folder to be removed",
        {
            "rename": "taking {} out of its place",
            "sync_folder": _STORE["sync_folder"],
        },
    ),
}
_STEPS = {
    "journal.create": "making the journal of a new run",
    "journal.epoch": "the SQLite COMMIT that makes this process the run's holder",
    "journal.plan": "the SQLite COMMIT of a stage's plan",
    "journal.commit": "the SQLite COMMIT of a group of units",
    "journal.amend": "the SQLite COMMIT that replaces a unit's rows by those of another key",
    "journal.pack": "the SQLite COMMIT that replaces parts by a pack",
    "journal.lose": "the SQLite COMMIT that makes a damaged unit owed again",
    "journal.redo": "the SQLite COMMIT that forgets what was made from damaged units",
    "journal.forget": "the SQLite COMMIT that forgets what was made before people rated it",
    "journal.reserve": "the SQLite COMMIT of what a unit, or a slice of it, may spend",
    "journal.keep": "the SQLite COMMIT of a slice's replies, before its unit is whole",
    "journal.abandon": "the SQLite COMMIT of what a dead process had reserved",
    "journal.add_seconds": "the SQLite COMMIT of a stage's wall time",
    "journal.record": "the SQLite COMMIT of an event",
    "journal.set_meta": "the SQLite COMMIT of facts about the run",
    "object.put": "sending an object to the bucket and asking whether it arrived",
    "object.copy": "copying an object within the bucket",
    "object.delete": "removing an object of the bucket",
    "head.take": "taking the next epoch of a run in a bucket",
    "snapshot": "sending a snapshot of the journal to the bucket",
    "lake.commit": "sealing and committing a group of units",
}
_PLACES = {
    "lake.recover": "before what interrupted writes left is swept, at the start",
    "lake.pack": "in the background, before parts are packed",
    "lake.discard": "before parts that were packed are removed",
    "stage.begin": "before a stage is planned",
    "stage.planned": "after a stage was planned, before its first unit",
    "stage.unit": "when a unit's result is known, before it is handed to the store",
    "stage.end": "when all units of a stage are done",
    "checkpoint.trained": "when a trainer has ended, before its model is published",
    "checkpoint.published": "when a model is published, before the journal refers to it",
    "checkpoint.committed": "when the journal refers to a new model",
    "trainer.checkpoint.saved": "in the trainer: a checkpoint is written, not sealed",
    "trainer.checkpoint.sealed": "in the trainer: a checkpoint has its manifest",
    "trainer.step.written": "in the trainer: an online method's step is written, not yet announced",
    "trainer.step.saved": "in the trainer: a policy on the way is saved, its step not announced",
    "trainer.model.saved": "in the trainer: the final model is written",
    "trainer.result": "in the trainer: before the result is written",
    "training.copied": "when the files of a checkpoint are in the bucket, before its list",
    "adopt.taken": "when an adopting machine has the next epoch, and no journal yet",
    "adopt.fetched": "when an adopting machine has fetched the journal, before it has its name",
    "control.command": "when a command has come by the control socket, before it takes effect",
}


def _declared() -> dict[str, str]:
    around = dict(_STEPS)
    for purpose, (noun, operations) in _DURABLE.items():
        for name, text in operations.items():
            around[f"{purpose}.{name}"] = text.format(noun)
    return {
        **{
            f"{name}.{side}": f"{side} {text}"
            for name, text in around.items()
            for side in ("before", "after")
        },
        **_PLACES,
    }


FAILPOINTS: Mapping[str, str] = MappingProxyType(_declared())
"""Every failpoint's name, and where it is."""


class FailpointError(ValueError):
    """A failpoint that is not declared, or an action that does not exist."""


def _signal(number: signal.Signals) -> Callable[[str], None]:
    return lambda name: os.kill(os.getpid(), number)  # noqa: ARG005 -- all actions are called alike


def _error(code: int) -> Callable[[str], None]:
    def fail(name: str) -> None:
        raise OSError(code, f"{os.strerror(code)} (failpoint {name})")

    return fail


ACTIONS: Mapping[str, Callable[[str], None]] = MappingProxyType(
    {
        "kill": _signal(signal.SIGKILL),
        "stop": _signal(signal.SIGSTOP),
        "enospc": _error(errno.ENOSPC),
        "edquot": _error(errno.EDQUOT),
        "eio": _error(errno.EIO),
    }
)
"""What can happen at a failpoint, by name; each is called with the failpoint's name."""


@dataclass(slots=True, eq=False)
class _Trap:
    """One armed failpoint: it fires the `nth` time only, or each time if that is None."""

    name: str
    nth: int | None
    action: Callable[[str], None]
    met: int = 0


_lock = threading.Lock()
_traps: list[_Trap] = []
_logs: list[list[str]] = []


def reach(name: str) -> None:
    """Fail here if a test wants it; nearly free otherwise.

    Raises:
        FailpointError: if `name` is not declared; checked only while anything is armed or observed.
        OSError: if an error is armed here.
    """
    if _traps or _logs:
        _meet(name)


def _meet(name: str) -> None:
    _require(name)
    sprung = list[_Trap]()
    with _lock:
        for log in _logs:
            log.append(name)
        for trap in _traps:
            if trap.name == name:
                trap.met += 1
                if trap.nth in (None, trap.met):
                    sprung.append(trap)
    for trap in sprung:
        trap.action(name)


@contextmanager
def armed(actions: Mapping[str, str | Callable[[str], None]]) -> Generator[None]:
    """Let this process fail here: at `NAME` each time, at `NAME#NTH` once.

    An action is a name from `ACTIONS`, or a function of the failpoint's name.
    """
    traps = [_trap(place, action) for place, action in actions.items()]
    with _lock:
        _traps.extend(traps)
    try:
        yield
    finally:
        with _lock:
            for trap in traps:
                _traps.remove(trap)


@contextmanager
def observed() -> Generator[list[str]]:
    """Yield a list that collects the names this process reaches, in order."""
    log = list[str]()
    with _lock:
        _logs.append(log)
    try:
        yield log
    finally:
        with _lock:
            _logs[:] = [other for other in _logs if other is not log]


def arm_from_environment() -> None:
    """Arm what the environment names, for the process's life; called when imported.

    Raises:
        FailpointError: naming what is not declared or not an action.
    """
    for entry in filter(None, os.environ.get(VARIABLE, "").split(",")):
        place, _, action = entry.strip().rpartition(":")
        _traps.append(_trap(place, action))


def _trap(place: str, action: str | Callable[[str], None]) -> _Trap:
    match = re.fullmatch(r"([^#]*)(?:#([1-9][0-9]*))?", place)
    if match is None:
        raise FailpointError(f"{place!r} is not NAME or NAME#NTH, NTH counting from 1")
    _require(match[1])
    if isinstance(action, str):
        if action not in ACTIONS:
            raise FailpointError(f"failpoint action {action!r} is not one of {', '.join(ACTIONS)}")
        action = ACTIONS[action]
    return _Trap(match[1], int(match[2]) if match[2] else None, action)


def _require(name: str) -> None:
    if name not in FAILPOINTS:
        raise FailpointError(f"failpoint {name!r} is not declared in stores/failpoints.py")


arm_from_environment()
