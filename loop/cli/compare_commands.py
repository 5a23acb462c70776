"""`lpfloop compare`: runs side by side, in the form of AlpacaFarm's Table 2."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import Form, FormError
from .common import DEFAULT_LAKE, AsForm, AsJson, Lake, OneTask, exit_codes

if TYPE_CHECKING:
    from rich.table import Table

    from ...stores.keys import Json
    from ..evaluation.compare_runs import Measure, Result

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
MARK = "*"
"""Marks a figure that must not be compared."""
EDGES = 3
_Column = tuple[str, list[str]]
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

    from ..data.terminal_sentences import tell
    from ..evaluation.compare_runs import by_method, results
    from ..evaluation.compare_tasks import results_by_task
    from ..lake.query.row_output import is_table, write_frame
    from .compare_tables import print_by_task

    for_people = is_table(form, as_json=as_json)
    found = results(lake, names, task=task)
    if together:
        found = by_method(found)
    rival = None if against is None else _called(against, found)
    if for_people:
        console = Console()
        tell(console, f"Held-out prompts (test): mean ± standard error over {_over(found)}")
        for table in _tables(found, rival, together=together, width=console.width):
            console.print(table)
        print_by_task(console, results_by_task(lake, names, together=together, task=task))
        for remark in _remarks(found):
            tell(console, remark)
    else:
        rows = [_row(result, rival, found) for result in found]
        write_frame(pl.DataFrame(rows, infer_schema_length=None), form, as_json=as_json)


def _called(name: str, found: Sequence["Result"]) -> "Result":
    for result in found:
        if name == result.method or name in result.runs:
            return result
    known = ", ".join(dict.fromkeys(result.method for result in found))
    raise FormError(f"--against {name}: not in the comparison, which has {known}")


def _row(result: "Result", rival: "Result | None", found: Sequence["Result"]) -> "dict[str, Json]":
    from ..evaluation.compare_runs import incomparable

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
        within = bounds_of(metric, measure)
        if within is not None:
            row |= {f"{metric}_low": within[0], f"{metric}_high": within[1]}
    for metric in RIVALRY if rival is not None else ():
        lead = result.lead(rival, metric) if rival is not None else None
        row |= {
            f"{metric}_lead": None if lead is None else lead.value,
            f"{metric}_lead_stderr": None if lead is None else lead.standard_error,
            f"{metric}_lead_interval": None if lead is None else list(lead.interval),
        }
    reasons = {metric: incomparable(found, metric) for metric in result.numbers}
    row["incomparable"] = sorted(metric for metric, reason in reasons.items() if reason)
    return row


def _tables(
    found: Sequence["Result"], rival: "Result | None", *, together: bool, width: int
) -> "Iterator[Table]":
    """Give tables of as many columns as there is room for; what was spent stands in the last."""
    names = [_name(result, together=together) for result in found]
    room = width - EDGES - max(map(len, ["Method", *names]))
    columns = [*_columns(found, rival), *_spent(found)]
    while columns:
        sizes = [1 + max(map(len, [heading, *cells])) for heading, cells in columns]
        fitting = max(1, sum(total <= room for total in accumulate(sizes)))
        yield _table(names, columns[:fitting])
        columns = columns[fitting:]


def _columns(found: Sequence["Result"], rival: "Result | None") -> "Iterator[_Column]":
    from ..evaluation.compare_runs import incomparable

    for column in COLUMNS:
        metric, heading, *_ = column
        if not any(metric in result.numbers for result in found):
            continue
        mark = MARK if incomparable(found, metric) else ""
        yield f"{heading}{mark}", [_number(result, *column) for result in found]
        if rival is not None and metric in RIVALRY:
            yield f"{heading} lead{mark}", [_lead(result, rival, *column) for result in found]


def _spent(found: Sequence["Result"]) -> "Iterator[_Column]":
    from ..evaluation.compare_runs import INITIAL

    free = [result.method == INITIAL for result in found]
    tokens, hours = [f"{r.tokens:,.0f}" for r in found], [f"{r.hours:.2f}" for r in found]
    for heading, cells in (("Tokens", tokens), ("Hours", hours)):
        yield heading, ["" if none else cell for none, cell in zip(free, cells, strict=True)]


def _over(found: Sequence["Result"]) -> str:
    """Say what the errors in the table are over."""
    prompts = "clusters of prompts" if any(r.clusters for r in found) else "prompts"
    return f"{prompts} and runs" if any(len(r.runs) > 1 for r in found) else prompts


def _table(names: Sequence[str], columns: "Sequence[_Column]") -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Method", overflow="fold")
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for number, name in enumerate(names):
        table.add_row(escape(name), *(escape(cells[number]) for _, cells in columns))
    return table


def _name(result: "Result", *, together: bool) -> str:
    """Return the method, and how many runs were averaged, or which run and which of its models."""
    from ..evaluation.compare_runs import INITIAL

    if together:
        runs = len(result.runs)
        return f"{result.method}, {runs} run" + ("s" if runs > 1 else "")
    if result.method == INITIAL:
        return f"{result.method}, {', '.join(result.runs)}"
    return f"{result.method}, {', '.join(result.runs)} M_{result.iteration}"


def _remarks(found: Sequence["Result"]) -> "Iterator[str]":
    """Say which figures in the tables must not be compared as they stand, and why."""
    from ..evaluation.compare_runs import incomparable, undecided_prompts

    reasons: dict[str, list[str]] = {}
    for metric, heading, *_ in COLUMNS:
        reason = incomparable(found, metric)
        if reason is not None:
            reasons.setdefault(reason, []).append(heading)
    for reason, headings in reasons.items():
        yield f"{MARK} not comparable as it stands: {', '.join(headings)}, measured {reason}"
    left_out = undecided_prompts(found)
    if left_out:
        yield (
            f"the math of {left_out} prompts was not decided in one of the results "
            "(math_undecided): they have no verified score there, and leads are over the others"
        )


def _number(result: "Result", metric: str, _: str, scale: float, decimals: int) -> str:
    measure = result.numbers.get(metric)
    if measure is None:
        return "-"
    within = bounds_of(metric, measure)
    if within is not None and not measure.stderr:
        return f"{measure.value * scale:.{decimals}f} [{{:.1f}}, {{:.1f}}]".format(
            *(scale * end for end in within)
        )
    error = "" if measure.stderr is None else f" ±{measure.stderr * scale:.{decimals}f}"
    return f"{measure.value * scale:.{decimals}f}{error}"


def bounds_of(metric: str, measure: "Measure") -> tuple[float, float] | None:
    """Return the 95 % interval of a measure that is a share."""
    from ..lake.query.figures import SHARES
    from ..lake.statistics.share_interval import share_interval

    if metric not in SHARES:
        return None
    return share_interval(measure.value, measure.stderr, measure.n)


def _lead(
    result: "Result", rival: "Result", metric: str, _: str, scale: float, decimals: int
) -> str:
    lead = result.lead(rival, metric)
    if lead is None or result is rival:
        return "-"
    low, high = (end * scale for end in lead.interval)
    return f"{lead.value * scale:+.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"
