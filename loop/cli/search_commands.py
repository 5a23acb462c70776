"""`lpfloop search`: find rows of all runs of a lake by their texts."""

from typing import Annotated, Literal

import typer

from ...stores.address import DEFAULT_LAKE
from .common import (
    Lake,
    OneIteration,
    OneTask,
)
from .output import RowOutput
from .word_completion import run_names

COLUMNS = ("score", "run", "iteration", "id", "task", "snippet")
"""The columns that a table shows."""


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
    table: Annotated[
        Literal["critiques", "candidates", "prompts"], typer.Option(help="Table to search.")
    ] = "critiques",
    iteration: OneIteration = None,
    task: OneTask = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most N rows.")] = 20,
    out: RowOutput,
) -> None:
    """Find critiques, answers or prompts by their text."""
    from ..lake.search.text_search import TextSearch
    from ..lake.search.text_search import search as found

    query = TextSearch(
        text=text,
        table=table,
        run=run,
        iteration=iteration,
        task=task,
        limit=limit,
    )
    out.rows(found(lake, query), COLUMNS)
