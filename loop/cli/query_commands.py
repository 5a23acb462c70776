"""`lpfloop sql`: query all runs of a lake."""

from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import Form
from .common import AsForm, AsJson, Lake, exit_codes
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
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Query all runs in SQL (DuckDB), read-only.

    Each table has a column `run`.
    """
    from ..lake.query.row_output import write_frame
    from ..lake.query.sql import COLUMNS, answer

    with exit_codes(), answer(lake, query or COLUMNS, run or (), timeout=timeout) as found:
        write_frame(found, form, as_json=as_json)
