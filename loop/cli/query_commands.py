"""`lpfloop sql`: query all runs of a lake."""

from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from .common import Lake
from .output import RowOutput
from .word_completion import run_names


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT; default: list the tables and columns.")
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of runs; default: all runs.", metavar="[RUN]...", autocompletion=run_names
        ),
    ] = None,
    *,
    timeout: Annotated[
        float, typer.Option(help="Stop the query after so many seconds; 0: never.")
    ] = 60,
    lake: Lake = DEFAULT_LAKE,
    out: RowOutput,
) -> None:
    """Query all runs in SQL (DuckDB), read-only.

    Each table has a column `run`.
    """
    from ..lake.query.sql import COLUMNS, answer

    with answer(lake, query or COLUMNS, run or (), timeout=timeout) as found:
        out.rows(found)
