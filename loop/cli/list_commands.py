"""Commands that list a run's rows with filters: critiques, candidates, grades, pairs, failures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import By, Form
from .common import (
    DEFAULT_LAKE,
    AsForm,
    AsJson,
    Lake,
    Limit,
    OneIteration,
    OneTask,
    RunArgument,
    exit_codes,
)

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader

OneAspect = Annotated[
    str | None, typer.Option("--aspect", help="Only with a rating of this aspect.")
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
MinTokens = Annotated[int | None, typer.Option("--min-length", help="At least N tokens.")]
MaxTokens = Annotated[int | None, typer.Option("--max-length", help="At most N tokens.")]
MinLength = Annotated[int | None, typer.Option("--min-length", help="At least N characters.")]
MaxLength = Annotated[int | None, typer.Option("--max-length", help="At most N characters.")]
Text = Annotated[
    str | None, typer.Option("--text", help="Only with this text, ignoring case; or /REGEX/.")
]
Unscored = Annotated[
    bool, typer.Option("--unscored", help="Only with replies that could not be read.")
]
Sort = Annotated[
    str | None, typer.Option("--sort", help="Sort by this column; -COLUMN: descending.")
]


def critiques(
    name: RunArgument,
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
    """List the critiques of a run."""
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
    name: RunArgument,
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
    """List the candidates of a run with their rewards and the ratings of their critiques."""
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


def grades(
    name: RunArgument,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    task: OneTask = None,
    aspect: Annotated[str | None, typer.Option("--aspect", help="Only in this aspect.")] = None,
    rating: Annotated[
        int | None, typer.Option("--rating", min=1, max=10, help="Only with this rating.")
    ] = None,
    unscored: Unscored = False,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    text: Text = None,
    sort: Sort = None,
    limit: Limit = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List the grades of a run: each candidate's ratings in four aspects, or as a whole."""
    from ..lake.query.row_lists import RowSelection
    from ..lake.query.row_lists import grades as listed

    wanted = RowSelection(
        iteration=iteration,
        task=task,
        aspect=aspect,
        rating=rating,
        unscored=unscored,
        min_length=min_length,
        max_length=max_length,
        text=text,
        sort=sort,
        limit=limit,
    )
    columns = ("candidate_id", "aspect", "rating", "iteration", "status", "rationale")
    list_rows(lake, name, lambda run: listed(run, wanted), columns, form, as_json=as_json)


def pairs(
    name: RunArgument,
    *,
    lake: Lake = DEFAULT_LAKE,
    derived: Annotated[
        str | None, typer.Option("--name", help="List this derived table instead.")
    ] = None,
    iteration: OneIteration = None,
    task: OneTask = None,
    rule: Annotated[str | None, typer.Option(help="Only pairs of this rule.")] = None,
    aspect: Annotated[
        str | None, typer.Option(help="Only with a rating of the rejected answer in this.")
    ] = None,
    rating: Annotated[
        int | None,
        typer.Option(min=-1, max=1, help="Only with this rating of the rejected answer."),
    ] = None,
    min_margin: Annotated[
        float | None, typer.Option(help="Reward of chosen minus rejected at least this.")
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
    """List the pairs of a run; filters on reward and length apply to the chosen answer."""
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


def failures(
    name: RunArgument,
    *,
    by: Annotated[By | None, typer.Option(help="Count them by this instead of listing.")] = None,
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
    """List what went wrong with candidates: aspects rated -1 or 0, unread replies, cut answers."""
    from ..lake.query.failures import counted
    from ..lake.query.failures import failures as listed
    from ..lake.query.row_lists import RowSelection

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

    def found(run: "RunReader") -> "pl.LazyFrame":
        rows = listed(run, wanted)
        return rows if by is None else counted(rows, by)

    columns = () if by else ("prompt_id", "aspect", "status", "iteration", "reward", "text")
    list_rows(lake, name, found, columns, form, as_json=as_json)


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
        reader = open_run(lake, name)
        try:
            write_frame(listed(reader), form, columns, as_json=as_json)
        finally:
            reader.close()
