"""The runs of a lake: opening them by name, and the rows of their loops.

Read-only and safe while the daemon writes.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import polars as pl

from ....configs.mistakes import did_you_mean, list_names
from ....stores.journal_reader import Reader
from ....stores.lake import RunReader, run_folder, run_names
from ....stores.side_evals import side_eval_of, smoke_test_of
from ...run.stop import END, STAGE


class NoSuchRunError(ValueError):
    """A run that is not in the lake, or a checkpoint that is not in the run."""

    code = "LPF-201"


def open_run(lake: Path, name: str | None) -> RunReader:
    """Open a run for reading; without a name, the one written last.

    Raises:
        NoSuchRunError: if it does not exist, naming those that do.
    """
    return RunReader(run_folder(lake, run_name(lake, name)))


def run_name(lake: Path, name: str | None) -> str:
    """Return the name of an existing run; by default, of the run written last.

    Raises:
        NoSuchRunError: if it does not exist, naming the existing ones.
    """
    names = run_names(lake)
    if name is None:
        if not names:
            raise NoSuchRunError(
                f"no run in {lake}: start one with `lpfloop demo` or `lpfloop run`"
            )
        name = names[-1]
    if name not in names:
        raise NoSuchRunError(
            f"no run {name!r} in {lake}; {did_you_mean(name, names)}runs there: "
            f"{list_names(names[::-1])}"
        )
    return name


def require_iteration(run: RunReader, iteration: int | None) -> None:
    """Refuse an iteration that a run has not started.

    Raises:
        NoSuchRunError: naming the existing ones.
    """
    begun = {stage.iteration for stage in run.journal.stages()}
    if iteration is None or not begun or iteration in begun:
        return
    there = f"{min(begun)} to {max(begun)}" if len(begun) > 1 else f"only {min(begun)}"
    raise NoSuchRunError(
        f"run {run.folder.name} does not have iteration {iteration}; it has {there}"
    )


def ending(journal: Reader) -> str | None:
    """Return why the loop last ended, or None if it was resumed since; side evals do not count."""
    ends = journal.events(END)
    begun = cast("list[dict[str, Any]]", journal.events(STAGE, after=END))
    stages = [event["stage"] for event in begun]
    again = any(side_eval_of(stage) is None or smoke_test_of(stage) for stage in stages)
    return str(ends[-1]) if ends and not again else None


def of_loop(
    run: RunReader,
    table: str,
    iteration: int | None = None,
    columns: Collection[str] | None = None,
) -> pl.LazyFrame:
    """Return the rows of a table that the loop made, in an iteration or in all.

    If only some of the columns are wanted, only they are read and verified.
    """
    return run.scan(table, iteration=iteration, columns=columns, stages=is_of_loop)


def is_of_loop(stage: str) -> bool:
    """Return whether a stage belongs to the loop, not to a side eval."""
    return side_eval_of(stage) is None
