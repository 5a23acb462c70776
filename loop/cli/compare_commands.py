"""`lpfloop compare`: runs side by side, in the form of AlpacaFarm's Table 2."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import Form, FormError
from .common import DEFAULT_LAKE, AsForm, AsJson, Lake, OneTask, exit_codes

if TYPE_CHECKING:
    from rich.table import Table

    from ...stores.keys import Json
    from ..evaluation.compare_runs import Result

COLUMNS = (
    ("verified", "Verified %", 100, 1),
    ("approval", "Approval %", 100, 1),
    ("win_rate", "Win %", 100, 1),
    ("length_controlled_win_rate", "LC %", 100, 1),
    ("true_score", "True", 1, 2),
    ("reward", "Reward", 1, 2),
    ("mean_length", "Length", 1, 1),
    ("kl", "KL", 1, 2),
)
"""The columns of the table: metric, heading, factor, decimals."""
RIVALRY = ("verified", "approval", "win_rate", "true_score")
"""The metrics for which one method's lead over another is shown."""


def compare(
    names: Annotated[list[str], typer.Argument(help="Names of runs.", metavar="RUN...")],
    *,
    lake: Lake = DEFAULT_LAKE,
    by_method: Annotated[
        bool, typer.Option("--by-method", help="Average over the runs of a method (seeds).")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(help="Also show the lead over this run or method, paired by prompt."),
    ] = None,
    task: OneTask = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Compare runs: win-rate, true score, reward, length, KL to M_0; tokens and hours spent."""
    with exit_codes():
        write_comparison(
            lake, names, together=by_method, against=against, task=task, form=form, as_json=as_json
        )


def print_comparison(lake: Path, names: Sequence[str]) -> None:
    """Print the table of a suite's runs, averaged by method.

    Raises:
        NoSuchRunError: if a run does not exist, or has measured nothing.
    """
    write_comparison(lake, names, together=True)


def write_comparison(
    lake: Path,
    names: Sequence[str],
    *,
    together: bool,
    against: str | None = None,
    task: str | None = None,
    form: Form = Form.TABLE,
    as_json: bool = False,
) -> None:
    """Write the results of runs as a table, or as one row each in other formats.

    Raises:
        NoSuchRunError: if a run does not exist, or has measured nothing.
        FormError: if `against` is not in the comparison.
    """
    import polars as pl
    from rich.console import Console

    from ..evaluation.compare_runs import by_method, results
    from ..lake.query.row_output import is_table, write_frame

    for_people = is_table(form, as_json=as_json)
    found = results(lake, names, task=task)
    if together:
        found = by_method(found)
    rival = None if against is None else _called(against, found)
    if for_people:
        Console().print(_table(found, rival, together=together))
    else:
        rows = [_row(result, rival) for result in found]
        write_frame(pl.DataFrame(rows, infer_schema_length=None), form, as_json=as_json)


def _called(name: str, found: Sequence["Result"]) -> "Result":
    for result in found:
        if name == result.method or name in result.runs:
            return result
    known = ", ".join(dict.fromkeys(result.method for result in found))
    raise FormError(f"--against {name}: not in the comparison, which has {known}")


def _row(result: "Result", rival: "Result | None") -> "dict[str, Json]":
    row: dict[str, Json] = {
        "method": result.method,
        "runs": list(result.runs),
        "iteration": result.iteration,
        "benchmark": result.benchmark,
        "checkpoint": result.checkpoint,
        "tokens": result.tokens,
        "hours": result.hours,
    }
    for metric, measure in sorted(result.numbers.items()):
        row |= {metric: measure.value, f"{metric}_stderr": measure.stderr}
    for metric in RIVALRY if rival is not None else ():
        lead = result.lead(rival, metric) if rival is not None else None
        row |= {
            f"{metric}_lead": None if lead is None else lead.value,
            f"{metric}_lead_stderr": None if lead is None else lead.standard_error,
            f"{metric}_lead_interval": None if lead is None else list(lead.interval),
        }
    return row


def _table(found: Sequence["Result"], rival: "Result | None", *, together: bool) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    title = "Mean ± standard error over held-out prompts; LC: at equal lengths; KL: to M_0"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("Method", no_wrap=True)
    table.add_column("Runs" if together else "Run", overflow="fold")
    shown = [column for column in COLUMNS if any(column[0] in r.numbers for r in found)]
    leads = [c for c in shown if c[0] in RIVALRY] if rival is not None else []
    for _, heading, _, _ in shown:
        table.add_column(heading, justify="right")
    for _, heading, _, _ in leads:
        table.add_column(f"{heading} lead", justify="right")
    table.add_column("Tokens", justify="right")
    table.add_column("Hours", justify="right")
    for result in found:
        cells = [_number(result, *column) for column in shown]
        cells += [_lead(result, rival, *column) for column in leads if rival is not None]
        spent = [f"{result.tokens:,.0f}", f"{result.hours:.2f}"] if result.iteration else ["", ""]
        runs = str(len(result.runs)) if together else ", ".join(result.runs)
        table.add_row(escape(result.method), escape(runs), *cells, *spent)
    return table


def _number(result: "Result", metric: str, _: str, scale: float, decimals: int) -> str:
    measure = result.numbers.get(metric)
    if measure is None:
        return "-"
    error = "" if measure.stderr is None else f" ±{measure.stderr * scale:.{decimals}f}"
    return f"{measure.value * scale:.{decimals}f}{error}"


def _lead(
    result: "Result", rival: "Result", metric: str, _: str, scale: float, decimals: int
) -> str:
    lead = result.lead(rival, metric)
    if lead is None or result is rival:
        return "-"
    low, high = (end * scale for end in lead.interval)
    return f"{lead.value * scale:+.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"
