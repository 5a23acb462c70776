"""What commands share: exit codes, error messages, the run that is meant."""

import errno
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import typer

UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
UNWRITABLE_CODE = "LPF-108"
CODE = re.compile(r"LPF-\d{3}")


class Exit(IntEnum):
    """The exit codes, by meaning."""

    DONE = 0
    FAULT = 1
    BAD_INPUT = 2
    STOPPED = 3
    NOTHING_TO_TRAIN_ON = 4
    REGRESSED = 5


FAULTS = (105, 212, 213, 214, 216, 219, 220, 301, 304, 305, 306, 307, 401, 501)
ENDS: Mapping[str, Exit] = {
    **{f"LPF-{number}": Exit.FAULT for number in FAULTS},
    "LPF-400": Exit.STOPPED,
    "LPF-402": Exit.NOTHING_TO_TRAIN_ON,
    "LPF-403": Exit.REGRESSED,
    "LPF-404": Exit.REGRESSED,
}
"""The exit codes of errors that are not bad input, by the code of their class."""


def chosen_run(lake: Path, name: str | None, *, tell: bool = False) -> str:
    """Return the name of an existing run: the given one, or the latest, printed if `tell`.

    Raises:
        NoSuchRunError: if the run does not exist, or the lake is empty.
    """
    from ..lake.query.runs import run_name
    from ..run.terminal import say

    found = run_name(lake, name)
    if tell and name is None:
        say(f"run {found}, the latest")
    return found


def folder_of(lake: Path, name: str) -> Path:
    """Return the folder of an existing run.

    Raises:
        NoSuchRunError: if it does not exist.
    """
    from ..lake.query.runs import open_run

    reader = open_run(lake, name)
    reader.close()
    return reader.folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an expected error means to the user: exit code, stable code (`LPF-102`), sentence."""

    exit: Exit
    code: str
    message: str


@contextmanager
def exit_codes() -> Generator[None]:
    """Turn expected errors into one sentence and an exit code; anything else is a fault."""
    from ..run.terminal import say

    try:
        yield
    except Exception as error:
        found = outcome(error)
        if found is None:
            raise
        heads = {Exit.NOTHING_TO_TRAIN_ON: "nothing to train on", Exit.REGRESSED: "stopped"}
        head = f"{heads.get(found.exit, 'error')} {found.code}: "
        say(found.message if found.exit is Exit.STOPPED else f"{head}{found.message}")
        raise typer.Exit(found.exit) from error


def outcome(error: Exception) -> Outcome | None:
    """Return what an expected error means; None of any other.

    The code of its class decides the exit code. An error that repeats the sentence of the one that
    caused it shows that one's code.
    """
    own = str(getattr(type(error), "code", ""))
    if not CODE.fullmatch(own):
        return _unwritable(error)
    cause = error.__cause__
    source = cause if cause is not None and str(cause) in str(error) else error
    code = str(getattr(source, "code", None) or getattr(error, "code", own))
    is_refused = getattr(error, "kind", None) == "refused"
    end = Exit.BAD_INPUT if is_refused else ENDS.get(own, Exit.BAD_INPUT)
    message = str(error) or "stopped cleanly; `lpfloop resume` continues the run"
    return Outcome(exit=end, code=code, message=message)


def _unwritable(error: Exception) -> Outcome | None:
    """Return the outcome of an error of the system that says that a file may not be used."""
    if not isinstance(error, OSError) or error.errno not in UNWRITABLE or error.filename is None:
        return None
    message = f"{error.filename} cannot be written or read here: {error.strerror}"
    return Outcome(exit=Exit.BAD_INPUT, code=UNWRITABLE_CODE, message=message)
