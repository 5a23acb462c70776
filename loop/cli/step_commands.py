"""`lpfloop steps`: the numbers of each step of a run's trainings."""

from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import Form
from .common import AnyRun, AsForm, AsJson, Lake, OneIteration
from .list_commands import list_rows

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader

OneMethod = Annotated[
    str | None, typer.Option("--method", help="Only this method: dpo, sft, reward, ppo or quark.")
]
SHOWN = ("iteration", "method", "step", "loss", "learning_rate", "grad_norm")


def steps(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    method: OneMethod = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List training steps: loss, margins, learning rate."""
    from ..lake.query.step_lists import steps as listed

    def found(run: "RunReader") -> "pl.LazyFrame":
        return listed(run, iteration=iteration, method=method)

    list_rows(lake, name, found, SHOWN, form, as_json=as_json)
