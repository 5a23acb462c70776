"""Commands that ask a lake: `sql`; and `eval`, `variants`."""

from pathlib import Path
from typing import Annotated

import typer

from ..asking.forms import Form, FormError
from .common import DEFAULT_LAKE, AsForm, AsJson, Lake, OneIteration, exit_codes
from .winning import WINRATE, winrate
from .working import reporting


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT; without it: what there is.")
    ] = None,
    *,
    run: Annotated[list[str] | None, typer.Option("--run", help="Only this run.")] = None,
    lake: Lake = DEFAULT_LAKE,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Ask runs in SQL (DuckDB), read-only: all runs of the lake, each table with a column `run`."""
    from ..asking.output import write_frame
    from ..asking.sql import COLUMNS, answer

    with exit_codes(), answer(lake, query or COLUMNS, run or ()) as found:
        write_frame(found, form, as_json=as_json)


def variants(*, form: AsForm = Form.AUTO, as_json: AsJson = False) -> None:
    """List the recipes."""
    import polars as pl

    from ..asking.output import write_frame
    from ..recipes import RECIPES

    rows = [{"name": n, "paper": v.paper, "summary": v.summary} for n, v in RECIPES.items()]
    with exit_codes():
        write_frame(pl.DataFrame(rows), form, as_json=as_json)


def evaluate(
    name: Annotated[
        str, typer.Argument(help="Name of the run; or winrate, of a file.", metavar="RUN|winrate")
    ],
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Evaluate on these prompts instead (JSONL).")
    ] = None,
    preferences: Annotated[
        Path | None, typer.Option(help="winrate: annotations in AlpacaEval's format.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="winrate: also by this field of the file.")] = None,
    versus: Annotated[
        Path | None, typer.Option(help="winrate: also the lead over the model of this file.")
    ] = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run's checkpoints: held-out prompts, or a file of your own; or a win-rate."""
    from ...stores.frames import rows_frame
    from ...stores.records import Evaluation
    from ..asking.output import is_table, write_frame
    from ..benchmarking import evaluate_run
    from ..printing import print_results

    with exit_codes():
        if name == WINRATE:
            winrate(preferences, by, versus, form, as_json=as_json)
            return
        for option, given in (("preferences", preferences), ("by", by), ("versus", versus)):
            if given is not None:
                raise FormError(f"--{option} is about a file: `lpfloop eval {WINRATE} ...`")
        table = is_table(form, as_json=as_json)
        with reporting() as reporter:
            found = evaluate_run(lake, name, iteration, prompts, reporter)
        if table:
            print_results(found)
        else:
            write_frame(rows_frame(Evaluation, found), form, as_json=as_json)
