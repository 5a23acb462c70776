"""`lpfloop search`: find rows of all runs of a lake by their texts."""

from enum import StrEnum
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import Form
from .common import (
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
