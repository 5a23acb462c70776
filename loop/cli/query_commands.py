"""`lpfloop sql`: query all runs of a lake."""

from typing import Annotated

import typer

from ..lake.query.forms import Form
from .common import DEFAULT_LAKE, AsForm, AsJson, Lake, exit_codes


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT; without it: list the tables.")
    ] = None,
    *,
    run: Annotated[list[str] | None, typer.Option("--run", help="Only this run.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that the query may compute; 0: no limit.")
    ] = 60,
    lake: Lake = DEFAULT_LAKE,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Query all runs in SQL (DuckDB), read-only; each table has a column `run`."""
    from ..lake.query.row_output import write_frame
    from ..lake.query.sql import COLUMNS, answer

    with exit_codes(), answer(lake, query or COLUMNS, run or (), timeout=timeout) as found:
        write_frame(found, form, as_json=as_json)
