"""`lpfloop steps`: the numbers of each step of a run's trainings."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import Form
from .common import DEFAULT_LAKE, AsForm, AsJson, Lake, OneIteration, RunArgument
from .list_commands import list_rows

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader

OneMethod = Annotated[
    str | None, typer.Option("--method", help="Only this: dpo, sft, reward, ppo or quark.")
]
SHOWN = ("iteration", "method", "step", "loss", "learning_rate", "grad_norm")


def steps(
    name: RunArgument,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    method: OneMethod = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List the steps of a run's trainings: loss, learning rate, margins and all else told."""
    from ..lake.query.step_lists import steps as listed

    def found(run: "RunReader") -> "pl.LazyFrame":
        return listed(run, iteration=iteration, method=method)

    list_rows(lake, name, found, SHOWN, form, as_json=as_json)
