"""`lpfloop annotations`: people's judgments by hand in the browser."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from .common import (
    AnyRun,
    Lake,
    chosen_run,
    folder_of,
)
from .list_commands import list_rows
from .output import RowOutput

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader

COLUMNS = ("judged_at", "annotator", "said", "comment", "seconds", "state", "first_id")
QUALITY = ("annotator", "judged", "seconds", "shared", "others", "kappa", "verifier")


def annotations(
    name: AnyRun = None,
    *,
    quality: Annotated[
        bool,
        typer.Option("--quality", help="List people instead: pace and agreement."),
    ] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Only bring what people judged into the run.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
    out: RowOutput,
) -> None:
    """List what people judged in `lpfloop view`, or how well they agree."""
    from ..run.terminal import say

    if commit:
        _bring_in(folder_of(lake, chosen_run(lake, name)), lake)
        return

    def listed(run: "RunReader") -> "pl.LazyFrame":
        from ..evaluation.annotation_list import annotation_rows, quality_rows

        if quality:
            rows, sentences = quality_rows(run)
            for sentence in sentences:
                say(sentence)
        else:
            rows = annotation_rows(run)
        return rows

    list_rows(lake, name, listed, QUALITY if quality else COLUMNS, out)


def _bring_in(folder: Path, lake: Path) -> None:
    """Commit the judgments to the run, or print which process does so."""
    from ...stores.lock import LockedError
    from ..lake.annotations.bring_in import bring_in_alone, waiting

    try:
        count = bring_in_alone(folder)
    except LockedError:
        typer.echo(
            f"{len(waiting(folder))} judgements wait: the process that works on run "
            f"{folder.name} takes them before it makes pairs; when it has ended, "
            f"`lpfloop annotations {folder.name} --commit{in_lake(lake)}` does"
        )
        return
    typer.echo(f"{folder.name}: {count} judgements came into the run")
