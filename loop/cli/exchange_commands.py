"""Commands that bring rows in and out: `import`, `export`, `annotations`."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..lake.query.forms import FormError
from .common import chosen_run, folder_of
from .options import (
    AnyRun,
    DefaultTask,
    Derived,
    DocumentOutput,
    Lake,
    Layout,
    OneIteration,
    Replace,
    run_names,
)

if TYPE_CHECKING:
    from ..lake.imports.import_files import Imported


Files = Annotated[
    list[Path], typer.Argument(help="JSONL, JSON, CSV or Parquet.", metavar="FILE...")
]


def import_(
    files: Files,
    *,
    name: Annotated[
        str,
        typer.Option(
            "--run", help="Name of the run that takes the rows.", autocompletion=run_names
        ),
    ],
    form: Layout = None,
    source: Annotated[
        str | None, typer.Option(help="Source of the rows, as it shall be stored.")
    ] = None,
    task: DefaultTask = None,
    scale: Annotated[
        str | None, typer.Option(help="Scale of the ratings: three-level, 1-5, 1-10, 0-10.")
    ] = None,
    failure: Annotated[float | None, typer.Option(help="Ratings up to this one become -1.")] = None,
    success: Annotated[
        float | None, typer.Option(help="Ratings from this one on become 1.")
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave out rows that cannot be read, and report each."),
    ] = False,
    bad_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Largest share of rows that --skip-bad may leave out."),
    ] = 0.5,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Import prompts, answers, ratings and votes.

    A repeated import does nothing.
    """
    from ..data.text import visible
    from ..lake.imports.import_files import Import, import_files
    from ..run.terminal import say

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
    done = import_files(job)
    sentences = "\n".join((_sentence(done), *done.notes.sentences()))
    out.document(done.as_json(), lambda: typer.echo(visible(sentences)))
    say(f"look at it: `lpfloop status {name}{in_lake(lake)}`")


def _sentence(done: "Imported") -> str:
    made = ", ".join(f"{count:,} {table}" for table, count in done.rows.items())
    unrated = f" ({done.unrated:,} unrated)" if done.unrated else ""
    was = "was imported before, nothing to do: " if done.again else ""
    return (
        f"{done.run}: {was}{done.read:,} rows of {done.form}, scale {done.scale}: {made}{unrated}"
    )


def export(
    words: Annotated[
        list[str],
        typer.Argument(
            help="Run (default: the latest), then the table: pairs, candidates or another.",
            metavar="[RUN] TABLE",
            autocompletion=run_names,
        ),
    ],
    *,
    form: Annotated[
        str,
        typer.Option("--as", help="Layout of the files: trl-dpo, llamafactory, jsonl or another."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="What to write: a new folder.")],
    iteration: OneIteration = None,
    derived: Derived = None,
    license_: Annotated[
        str | None,
        typer.Option(
            "--license", help="Licence on the dataset card, by its identifier on the HF hub."
        ),
    ] = None,
    force: Replace = False,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Write a table for a trainer, with a dataset card."""
    from ..lake.exports.export import Export, export_table

    *called, table = words
    if len(called) > 1:
        raise FormError(f"export {' '.join(words)}: give a run and one table")
    job = Export(
        lake=lake,
        name=chosen_run(lake, called[0] if called else None, tell=True),
        table=table,
        form=form,
        target=output,
        iteration=iteration,
        derived=derived,
        license=license_,
        force=force,
    )
    done = export_table(job)
    files = "\n".join(f"{done.folder / file}: {rows:,} rows" for file, rows in done.files.items())
    out.document(done.as_json(), lambda: typer.echo(files))


def annotations(
    name: AnyRun = None,
    *,
    commit: Annotated[
        bool, typer.Option("--commit", help="Bring what people judged into the run.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Show how far the people who judged in `lpfloop view` agree."""
    from ..evaluation.people_agreement import agreement_lines
    from ..lake.query.runs import open_run

    chosen = chosen_run(lake, name)
    if commit:
        _bring_in(folder_of(lake, chosen), lake)
    with closing(open_run(lake, chosen)) as run:
        lines = list(agreement_lines(run))
    for line in lines or [f"nobody has judged an answer of run {chosen} yet"]:
        typer.echo(line)


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
