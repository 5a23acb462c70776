"""Commands that bring rows into the lake and out of it: `import`, `export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    DEFAULT_LAKE,
    AsJson,
    Lake,
    OneIteration,
    RunArgument,
    exit_codes,
    in_lake,
)

if TYPE_CHECKING:
    from ..lake.imports.import_files import Imported

Files = Annotated[list[Path], typer.Argument(help="JSONL, JSON, CSV or Parquet.", metavar="FILE…")]


def import_(
    files: Files,
    *,
    name: Annotated[str, typer.Option("--run", help="Name of the run that takes the rows.")],
    form: Annotated[
        str | None,
        typer.Option("--format", help="Format of the files; default: guessed from their fields."),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Name of their source.")] = None,
    task: Annotated[str | None, typer.Option(help="Task of prompts without one.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="Scale of the ratings: three-level, 1-5, 1-10, 0-10.")
    ] = None,
    failure: Annotated[float | None, typer.Option(help="Ratings up to this become -1.")] = None,
    success: Annotated[float | None, typer.Option(help="Ratings from this on become 1.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows that cannot be read, with receipts.")
    ] = False,
    bad_share: Annotated[
        float, typer.Option(min=0, max=1, help="Largest share of rows that --skip-bad leaves out.")
    ] = 0.5,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Import prompts, answers made elsewhere, ratings and votes; a repeated import does nothing."""
    from ..data.sanitize import visible
    from ..lake.imports.import_files import Import, import_files
    from ..run.terminal import say
    from .tables import print_json

    job = Import(
        lake=lake,
        name=name,
        files=tuple(files),
        form=form,
        source=source,
        task=task,
        scale=scale,
        failure=failure,
        success=success,
        skip_bad=skip_bad,
        bad_share=bad_share,
    )
    with exit_codes():
        done = import_files(job)
    if as_json:
        print_json(done.as_json())
    else:
        for told in (_sentence(done), *done.notes.sentences()):
            typer.echo(visible(told))
    say(f"look at it: `lpfloop status {name}{in_lake(lake)}`")


def _sentence(done: "Imported") -> str:
    made = ", ".join(f"{count:,} {table}" for table, count in done.rows.items())
    unrated = f" ({done.unrated:,} unrated)" if done.unrated else ""
    was = "was imported before, nothing to do: " if done.again else ""
    return (
        f"{done.run}: {was}{done.read:,} rows of {done.form}, scale {done.scale}: {made}{unrated}"
    )


def export(
    name: RunArgument,
    table: Annotated[
        str, typer.Argument(help="pairs, demonstrations, candidates, …", metavar="TABLE")
    ],
    *,
    form: Annotated[
        str, typer.Option("--format", help="trl-dpo, llamafactory, inspect, parquet, …")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="New folder to write.")],
    iteration: OneIteration = None,
    derived: Annotated[
        str | None, typer.Option("--name", help="A derived table (`lpfloop rederive`).")
    ] = None,
    license_: Annotated[
        str | None,
        typer.Option("--license", help="Licence on the card, as an identifier of the HF hub."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Write a table in a trainer's or viewer's format, with a dataset card, to a new folder."""
    from ..lake.exports.export import Export, export_table
    from .tables import print_json

    job = Export(
        lake=lake,
        name=name,
        table=table,
        form=form,
        target=output,
        iteration=iteration,
        derived=derived,
        license=license_,
        force=force,
    )
    with exit_codes():
        done = export_table(job)
    if as_json:
        print_json(done.as_json())
    else:
        for file, rows in done.files.items():
            typer.echo(f"{done.folder / file}: {rows:,} rows")
