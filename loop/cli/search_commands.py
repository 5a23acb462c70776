"""Commands on all texts of a lake: `search`, `reindex`, `duplicates`."""

from enum import StrEnum
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import Form
from .common import (
    AnyRun,
    AsForm,
    AsJson,
    Lake,
    OneIteration,
    OneTask,
    exit_codes,
)
from .word_completion import run_names

COLUMNS = ("score", "run", "iteration", "id", "task", "snippet")
"""The columns that a table shows."""


class Searched(StrEnum):
    """The rows that can be searched."""

    CRITIQUES = "critiques"
    CANDIDATES = "candidates"
    PROMPTS = "prompts"


def search(
    text: Annotated[str, typer.Argument(help='Words, and "phrases" in quotes.', metavar="QUERY")],
    run: Annotated[
        str | None,
        typer.Argument(
            help="Name of the run; default: all runs.", metavar="RUN", autocompletion=run_names
        ),
    ] = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    table: Annotated[Searched, typer.Option(help="Table to search.")] = Searched.CRITIQUES,
    iteration: OneIteration = None,
    task: OneTask = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most N rows.")] = 20,
    as_json: AsJson = False,
    form: AsForm = Form.AUTO,
) -> None:
    """Find critiques, answers or prompts by their text."""
    from ..lake.query.row_output import write_frame
    from ..lake.search.text_search import TextSearch
    from ..lake.search.text_search import search as found

    with exit_codes():
        wanted = TextSearch(
            text=text,
            table=table.value,
            run=run,
            iteration=iteration,
            task=task,
            limit=limit,
        )
        write_frame(found(lake, wanted), form, COLUMNS, as_json=as_json)


def reindex(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    full: Annotated[bool, typer.Option("--full", help="Rebuild the index from scratch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the search index up to date.

    With all runs of the lake, or with one.
    """
    from ...stores.index import SEARCHED, Index, index_folder
    from ..lake.search.text_search import reindex
    from .tables import print_json

    with exit_codes():
        done = reindex(lake, name, full=full)
        index = Index(index_folder(lake))
        held = {table: index.count(table) for table in SEARCHED}
    if as_json:
        print_json({"added": done.rows, "forgotten": done.forgotten, "rows": held})
    else:
        rows = ", ".join(f"{count:,} {table}" for table, count in held.items())
        typer.echo(f"{done.rows:,} rows added; the index holds {rows}")


def duplicates(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    show: Annotated[
        int | None,
        typer.Option("--worst", min=1, help="List the N worst of each kind, instead of counting."),
    ] = None,
    as_json: AsJson = False,
    form: AsForm = Form.AUTO,
) -> None:
    """Count copies, near copies and contamination.

    Among candidates and prompts, and of held-out prompts in train.
    """
    from ..lake.query.row_output import write_frame
    from ..lake.query.runs import open_run, require_iteration
    from ..lake.search.duplicates import duplicates as count
    from ..lake.search.duplicates import worst

    with exit_codes():
        reader = open_run(lake, name)
        require_iteration(reader, iteration)
        found = count(reader, iteration) if show is None else worst(reader, iteration, show)
        reader.close()
        write_frame(found, form, as_json=as_json)
