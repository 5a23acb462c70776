"""Commands that list rows: critiques, candidates, pairs, alarms, search hits, answers to SQL."""

from collections.abc import Callable, Sequence
from contextlib import closing
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.filters import TABLES
from .common import chosen_run
from .options import (
    AnyRun,
    Derived,
    Lake,
    Limit,
    OneIteration,
    OneTask,
    Output,
    RowOutput,
    run_names,
)

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader


Sort = Annotated[
    str | None,
    typer.Option("--sort", help="Sort by this column; -COLUMN sorts in descending order."),
]


OPTIONS = ("iteration", "derived", "sort", "limit")
"""The options that do not filter."""


def _command(table: str, about: str, columns: Sequence[str], *, derived: bool = False) -> Any:
    """Return the command that lists a table; each filter of the table is an option.

    Args:
        table: the table's name.
        about: the command's help text.
        columns: the columns of a table on a terminal.
        derived: whether derived tables can be listed, too.
    """

    def command(name: str | None, lake: Path, out: Output, **given: Any) -> None:
        from ..lake.query.tables import rows

        options = {word: given.pop(word, None) for word in OPTIONS}

        def listed(run: "RunReader") -> "pl.LazyFrame":
            return rows(run, table, given, **options)

        list_rows(lake, name, listed, columns, out)

    arguments = [
        _option("name", AnyRun, None, kind=Parameter.POSITIONAL_OR_KEYWORD),
        _option("lake", Lake, DEFAULT_LAKE),
        *([_option("derived", Derived, None)] if derived else []),
        _option("iteration", OneIteration, None),
        *_filters(table),
        _option("sort", Sort, None),
        _option("limit", Limit, None),
        _option("out", RowOutput, Parameter.empty),
    ]
    command.__name__, command.__doc__ = table, about
    command.__annotations__ = {option.name: option.annotation for option in arguments}
    vars(command)["__signature__"] = Signature(arguments)
    return command


def _filters(table: str) -> list[Parameter]:
    """Return an option for each filter of a table."""
    about = TABLES[table]
    options = list[Parameter]()
    for name, (kind, help_text) in about.filters.items():
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=help_text.help,
            min=help_text.least,
            max=help_text.most,
        )
        hint = Annotated[bool, option] if kind is bool else Annotated[kind | None, option]
        options.append(_option(name, hint, default=False if kind is bool else None))
    return options


def _option(name: str, hint: Any, default: object, kind: Any = Parameter.KEYWORD_ONLY) -> Parameter:
    return Parameter(name, kind, default=default, annotation=hint)


critiques = _command(
    "critiques",
    "List the critic's comments and ratings.",
    ("prompt_id", "iteration", "aspects", "status", "text"),
)
candidates = _command(
    "candidates",
    "List answers with their ratings and rewards.",
    ("candidate_id", "reward", "task", "iteration", "kind", "completion_tokens", "text"),
)
pairs = _command(
    "pairs",
    "List pairs: a chosen and a rejected answer.\n\n"
    "Filters on reward and length apply to the chosen answer, those on aspect, rating and "
    "unscored to the rejected one.",
    ("prompt_id", "iteration", "rank", "prompt", "chosen", "rejected"),
    derived=True,
)


def list_rows(
    lake: Path,
    name: str | None,
    listed: "Callable[[RunReader], pl.LazyFrame]",
    columns: Sequence[str],
    out: Output,
) -> None:
    """Write the rows of a run; the run stays open until they are written."""
    from ..lake.query.runs import open_run

    with closing(open_run(lake, chosen_run(lake, name, tell=True))) as reader:
        out.rows(listed(reader), columns)


ALARM_COLUMNS = ("iteration", "code", "severity", "message", "remedy", "examples")


def alarms(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    limit: Limit = None,
    out: RowOutput,
) -> None:
    """List a run's warnings, with what to do about each; only those of severity `stop` stop it."""
    from ..lake.query.alarm_list import alarm_rows
    from ..lake.query.runs import require_iteration

    def listed(run: "RunReader") -> "pl.LazyFrame":
        require_iteration(run, iteration)
        rows = alarm_rows(run, iteration)
        return rows if limit is None else rows.head(limit)

    list_rows(lake, name, listed, ALARM_COLUMNS, out)


HIT_COLUMNS = ("score", "run", "iteration", "id", "task", "snippet")
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
    out.rows(found(lake, query), HIT_COLUMNS)


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
