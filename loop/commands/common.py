"""What all commands share: exit codes, options, and how an error is told."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_LAKE = Path("lake")


class Exit(IntEnum):
    """What the exit code of a command means."""

    DONE = 0
    FAULT = 1
    BAD_INPUT = 2
    STOPPED = 3
    NOTHING_TO_TRAIN_ON = 4


Lake = Annotated[
    Path, typer.Option("--lake", envvar="LPFLOOP_LAKE", help="Folder that holds the runs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
OneIteration = Annotated[int | None, typer.Option("--iteration", min=0, help="Only iteration T.")]
OneTask = Annotated[str | None, typer.Option("--task", help="Only prompts of this task.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many rows.")]
RunArgument = Annotated[str, typer.Argument(help="Name of the run.", metavar="RUN")]
AnyRun = Annotated[
    str | None, typer.Argument(help="Name of the run; default: the latest.", metavar="RUN")
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override: section.key=value.")]


def in_lake(lake: Path) -> str:
    """Return the option that a command needs to find `lake`, with the space before it."""
    return "" if lake == DEFAULT_LAKE else f" --lake {lake}"


def folder_of(lake: Path, name: str) -> Path:
    """Return the folder of a run that is there.

    Raises:
        NoSuchRunError: if it is not.
    """
    from ..reading import open_run

    reader = open_run(lake, name)
    reader.close()
    return reader.folder


@contextmanager
def exit_codes() -> Generator[None]:
    """Turn what can go wrong into one sentence and its exit code; anything else is a fault."""
    from ...configs.schema import ConfigError
    from ...policies.engine import EngineError
    from ...policies.training import TrainingError
    from ...stores.inspection import DamagedJournalError
    from ...stores.journal import FencedError
    from ...stores.journal_reader import JournalError
    from ...stores.lake import OwedAgainError, RunNameError
    from ...stores.lock import LockedError
    from ...stores.sealed import DamagedError
    from ..control import ControlError, NoDaemonError, RefusedError
    from ..prompts import InputError
    from ..reading import NoSuchPromptError, NoSuchRunError
    from ..stop import Stopped
    from ..talk import say
    from ..training import NothingToTrainOn

    try:
        yield
    except (
        ConfigError,
        InputError,
        RunNameError,
        NoSuchRunError,
        NoSuchPromptError,
        NoDaemonError,
        RefusedError,
        JournalError,
        LockedError,
    ) as error:
        say(f"error: {error}")
        raise typer.Exit(Exit.BAD_INPUT) from error
    except (
        EngineError,
        TrainingError,
        DamagedError,
        DamagedJournalError,
        OwedAgainError,
        FencedError,
        ControlError,
    ) as error:
        say(f"error: {error}")
        raise typer.Exit(Exit.FAULT) from error
    except Stopped as error:
        say(str(error) or "stopped cleanly; `lpfloop resume` continues where it stopped")
        raise typer.Exit(Exit.STOPPED) from error
    except NothingToTrainOn as error:
        say(f"nothing to train on: {error}")
        raise typer.Exit(Exit.NOTHING_TO_TRAIN_ON) from error
