"""Commands that maintain a run: `digest`, `verify`, `repair`, `gc`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from .common import Exit, chosen_run, folder_of
from .options import AnyRun, DocumentOutput, Lake

if TYPE_CHECKING:
    from ...stores.garbage import Garbage
    from ...stores.inspection import Damage


def digest(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Print one hash of all that a run has made.

    However it was made: stopped, resumed or at once. With --json it also has a hash of each
    measurement by `eval run --prompts`.
    """
    from ...stores.digest import run_digest, side_eval_digests

    name = chosen_run(lake, name)
    folder = folder_of(lake, name)
    found = run_digest(folder)
    document = {"run": name, "digest": found, "side_evals": side_eval_digests(folder)}
    out.document(document, lambda: typer.echo(found))


def verify(
    name: AnyRun = None,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Read and hash every byte.")] = False,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Check that all rows and models of a run are there.

    Exit code 1 if not; lists the units with missing or altered rows.
    """
    from ...stores.inspection import damages
    from ...stores.journal_file import check_journal
    from ...stores.journal_reader import Reader
    from ..run.terminal import say

    name = chosen_run(lake, name, tell=True)
    folder = folder_of(lake, name)
    check_journal(folder)
    reader = Reader(folder)
    found = damages(reader, deep=deep)
    parts = len(reader.parts())
    reader.close()
    document = [{**asdict(damage), "path": str(damage.path)} for damage in found]
    out.document(document, lambda: _list(found))
    if found:
        units = len({damage.unit for damage in found})
        say(f"`lpfloop lake repair {name}{in_lake(lake)}` makes these {units} units pending again")
        raise typer.Exit(Exit.FAULT)
    summary = f"{parts} parts and all checkpoints are {'unaltered' if deep else 'there'}"
    typer.echo(summary, err=out.as_json)


def repair(
    name: AnyRun = None,
    *,
    redo: Annotated[
        bool, typer.Option("--redo", help="Also discard the rows that depend on the damaged ones.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Set damaged files aside, to be made again.

    Exactly their units are planned again; a damaged journal is mended first.
    """
    from ...stores.inspection import repair as repair_run
    from ...stores.journal import Journal
    from ...stores.journal_backups import mend
    from ..run.terminal import say

    name = name or chosen_run(lake, None, tell=True)
    folder = _mendable(lake, name)
    mended = mend(folder)
    if mended is not None:
        say(f"the journal was damaged; {mended}")
    journal = Journal(folder)
    try:
        found = repair_run(journal)
        forgotten = journal.redo() if redo else 0
    finally:
        journal.close()
    _list(found)
    typer.echo(f"{len({damage.unit for damage in found})} units are pending again")
    if redo:
        typer.echo(f"{forgotten} units made after them are forgotten")
    if found or forgotten:
        say(f"`lpfloop resume {name}{in_lake(lake)}` makes them again")


def gc(
    name: AnyRun = None,
    *,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1, help="Also remove all weights but the newest K models' and the best model's."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the files that would go.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Remove files that a run no longer needs.

    Nothing in the run refers to them; the reason is given for each.
    """
    from ...stores.garbage import collect, garbage
    from ...stores.journal import Journal
    from ...stores.journal_reader import Reader
    from ..run.terminal import say

    name = chosen_run(lake, name, tell=True)
    folder = folder_of(lake, name)
    journal = Reader(folder) if dry_run else Journal(folder)
    try:
        found = garbage(journal, keep=keep)
        gone = collect(journal, found) if isinstance(journal, Journal) else found
    finally:
        journal.close()
    document = [{**asdict(piece), "path": str(piece.path)} for piece in gone]
    state = "may go" if dry_run else "are gone"
    out.document(document, lambda: _list_garbage(gone, folder, state))
    if len(gone) < len(found):
        say(f"{len(found) - len(gone)} files of rows stay, as run {name} is being read")


def _mendable(lake: Path, name: str) -> Path:
    """Return the folder of a run, whose journal may be damaged or even missing."""
    from ...stores.journal import BACKUPS
    from ...stores.journal_file import JOURNAL
    from ...stores.lake import run_folder
    from ..lake.query.runs import open_run

    folder = run_folder(lake, name)
    if not any((folder / there).exists() for there in (JOURNAL, BACKUPS)):
        open_run(lake, name)
    return folder


def _list(found: "list[Damage]") -> None:
    from ..data.text import visible

    for damage in found:
        place = f"iteration {damage.iteration}, {damage.stage}, chunk {damage.chunk}"
        typer.echo(visible(f"{place} (unit {damage.unit[:12]}): {damage.reason}"))


def _list_garbage(found: "list[Garbage]", folder: Path, state: str) -> None:
    from ..data.text import visible

    for piece in found:
        typer.echo(visible(f"{piece.size:>14,}  {piece.path.relative_to(folder)}: {piece.reason}"))
    typer.echo(f"{sum(piece.size for piece in found):>14,}  bytes {state}")
