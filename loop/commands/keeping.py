"""Commands that keep a run whole: `digest`, `verify`, `repair`, `gc`, `failpoints`."""

from typing import TYPE_CHECKING, Annotated

import typer

from .common import DEFAULT_LAKE, Exit, Lake, RunArgument, exit_codes, folder_of, in_lake

if TYPE_CHECKING:
    from ...stores.inspection import Damage


def digest(name: RunArgument, *, lake: Lake = DEFAULT_LAKE) -> None:
    """Print the hash of all that a run has made, the same for every way in which it was made."""
    from ...stores.digest import run_digest

    with exit_codes():
        typer.echo(run_digest(folder_of(lake, name)))


def verify(
    name: RunArgument,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Hash every byte.")] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Check that all that a run has committed is there; name the units whose rows are not."""
    from ...stores.inspection import check_journal, damages
    from ...stores.journal_reader import Reader
    from ..talk import say

    with exit_codes():
        folder = folder_of(lake, name)
        check_journal(folder)
        reader = Reader(folder)
        found = damages(reader, deep=deep)
        parts = len(reader.parts())
        reader.close()
    _list(found)
    if found:
        units = len({damage.unit for damage in found})
        say(f"`lpfloop repair {name}{in_lake(lake)}` makes these {units} units owed again")
        raise typer.Exit(Exit.FAULT)
    typer.echo(f"{parts} parts and all checkpoints are {'unaltered' if deep else 'there'}")


def repair(
    name: RunArgument,
    *,
    redo: Annotated[
        bool, typer.Option("--redo", help="Also forget what was made of damaged rows.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Put what is damaged into quarantine, and make exactly its units owed again."""
    from ...stores.inspection import check_journal
    from ...stores.inspection import repair as repair_run
    from ...stores.journal import Journal
    from ..talk import say

    with exit_codes():
        folder = folder_of(lake, name)
        check_journal(folder)
        journal = Journal(folder)
        try:
            found = repair_run(journal)
            forgotten = journal.redo() if redo else 0
        finally:
            journal.close()
    _list(found)
    typer.echo(f"{len({damage.unit for damage in found})} units are owed again")
    if redo:
        typer.echo(f"{forgotten} units that were made after them are forgotten")
    if found or forgotten:
        say(f"`lpfloop resume {name}{in_lake(lake)}` makes them again")


def gc(
    name: RunArgument,
    *,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Give up the weights of all but the newest K.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what may go.")] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Remove what nothing in a run refers to, and say why each piece may go."""
    from ...stores.garbage import collect, garbage
    from ...stores.journal import Journal
    from ...stores.journal_reader import Reader
    from ..shown import visible

    with exit_codes():
        folder = folder_of(lake, name)
        journal = Reader(folder) if dry_run else Journal(folder)
        try:
            found = garbage(journal, keep=keep)
            if isinstance(journal, Journal):
                collect(journal, found)
        finally:
            journal.close()
    for piece in found:
        typer.echo(visible(f"{piece.size:>14,}  {piece.path.relative_to(folder)}: {piece.reason}"))
    size = sum(piece.size for piece in found)
    typer.echo(f"{size:>14,}  bytes {'may go' if dry_run else 'are gone'}")


def failpoints() -> None:
    """List the places at which a test can make a process fail."""
    from ...stores.failpoints import FAILPOINTS

    for name, description in FAILPOINTS.items():
        typer.echo(f"{name:<32} {description}")


def _list(found: "list[Damage]") -> None:
    from ..shown import visible

    for damage in found:
        place = f"iteration {damage.iteration}, {damage.stage}, chunk {damage.chunk}"
        typer.echo(visible(f"{place} (unit {damage.unit[:12]}): {damage.reason}"))
