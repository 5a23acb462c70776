"""Commands that list a run's rows with filters: critiques, candidates, pairs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import Form
from .common import (
    AnyRun,
    AsForm,
    AsJson,
    Derived,
    Lake,
    Limit,
    OneIteration,
    OneTask,
    chosen_run,
    exit_codes,
)

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader

OneAspect = Annotated[
    str | None, typer.Option("--aspect", help="Only this aspect: rows that are rated in it.")
]
OneRating = Annotated[
    int | None, typer.Option("--rating", min=-1, max=1, help="Only with this rating.")
]
OneKind = Annotated[
    str | None,
    typer.Option("--kind", help="Only this kind: sample, refinement, greedy or external."),
]
MinReward = Annotated[float | None, typer.Option("--min-reward", help="Reward at least this.")]
MaxReward = Annotated[float | None, typer.Option("--max-reward", help="Reward at most this.")]
MinTokens = Annotated[int | None, typer.Option("--min-length", help="Length at least N tokens.")]
MaxTokens = Annotated[int | None, typer.Option("--max-length", help="Length at most N tokens.")]
MinLength = Annotated[
    int | None, typer.Option("--min-length", help="Length at least N characters.")
]
MaxLength = Annotated[int | None, typer.Option("--max-length", help="Length at most N characters.")]
Text = Annotated[
    str | None, typer.Option("--text", help="Only with this text in any case, or matching /REGEX/.")
]
Unscored = Annotated[
    bool, typer.Option("--unscored", help="Only with a reply that could not be read.")
]
Sort = Annotated[
    str | None,
    typer.Option("--sort", help="Sort by this column; -COLUMN sorts in descending order."),
]


def critiques(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    task: OneTask = None,
    kind: OneKind = None,
    aspect: OneAspect = None,
    rating: OneRating = None,
    unscored: Unscored = False,
    min_reward: MinReward = None,
    max_reward: MaxReward = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    text: Text = None,
    sort: Sort = None,
    limit: Limit = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List what the critic said of the answers."""
    from ..lake.query.row_lists import RowSelection
    from ..lake.query.row_lists import critiques as listed

    wanted = RowSelection(
        iteration=iteration,
        task=task,
        kind=kind,
        aspect=aspect,
        rating=rating,
        unscored=unscored,
        min_reward=min_reward,
        max_reward=max_reward,
        min_length=min_length,
        max_length=max_length,
        text=text,
        sort=sort,
        limit=limit,
    )
    columns = ("prompt_id", "iteration", "aspects", "status", "text")
    list_rows(lake, name, lambda run: listed(run, wanted), columns, form, as_json=as_json)


def candidates(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    task: OneTask = None,
    kind: OneKind = None,
    aspect: OneAspect = None,
    rating: OneRating = None,
    unscored: Unscored = False,
    min_reward: MinReward = None,
    max_reward: MaxReward = None,
    min_length: MinTokens = None,
    max_length: MaxTokens = None,
    text: Text = None,
    sort: Sort = None,
    limit: Limit = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List answers with their ratings and rewards."""
    from ..lake.query.row_lists import RowSelection
    from ..lake.query.row_lists import candidates as listed

    wanted = RowSelection(
        iteration=iteration,
        task=task,
        kind=kind,
        aspect=aspect,
        rating=rating,
        unscored=unscored,
        min_reward=min_reward,
        max_reward=max_reward,
        min_length=min_length,
        max_length=max_length,
        text=text,
        sort=sort,
        limit=limit,
    )
    columns = ("candidate_id", "reward", "task", "iteration", "kind", "completion_tokens", "text")
    list_rows(lake, name, lambda run: listed(run, wanted), columns, form, as_json=as_json)


def pairs(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    derived: Derived = None,
    iteration: OneIteration = None,
    task: OneTask = None,
    rule: Annotated[str | None, typer.Option(help="Pairing rule: only pairs made by it.")] = None,
    aspect: Annotated[
        str | None,
        typer.Option(help="Only this aspect: pairs whose rejected answer is rated in it."),
    ] = None,
    rating: Annotated[
        int | None,
        typer.Option(min=-1, max=1, help="Only with this rating: that of the rejected answer."),
    ] = None,
    min_margin: Annotated[
        float | None,
        typer.Option(help="Reward of the chosen answer minus the rejected one: at least this."),
    ] = None,
    min_reward: MinReward = None,
    max_reward: MaxReward = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    text: Text = None,
    sort: Sort = None,
    limit: Limit = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List pairs: a chosen and a rejected answer.

    Filters on reward and length apply to the chosen answer, those on aspect and rating to the
    rejected one.
    """
    from ..lake.query.row_lists import RowSelection
    from ..lake.query.row_lists import pairs as listed

    wanted = RowSelection(
        iteration=iteration,
        task=task,
        rule=rule,
        aspect=aspect,
        rating=rating,
        min_margin=min_margin,
        min_reward=min_reward,
        max_reward=max_reward,
        min_length=min_length,
        max_length=max_length,
        text=text,
        sort=sort,
        limit=limit,
    )
    columns = ("prompt_id", "iteration", "rank", "prompt", "chosen", "rejected")
    list_rows(lake, name, lambda run: listed(run, wanted, derived), columns, form, as_json=as_json)


def list_rows(
    lake: Path,
    name: str | None,
    listed: "Callable[[RunReader], pl.LazyFrame]",
    columns: Sequence[str],
    form: Form,
    *,
    as_json: bool,
) -> None:
    """Write the rows of a run; the run stays open until they are written."""
    from ..lake.query.row_output import write_frame
    from ..lake.query.runs import open_run

    with exit_codes():
        reader = open_run(lake, chosen_run(lake, name, tell=True))
        try:
            write_frame(listed(reader), form, columns, as_json=as_json)
        finally:
            reader.close()
