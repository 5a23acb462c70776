"""The command that tells how far a run's answers are supported by their references: `facts`."""

from typing import TYPE_CHECKING

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import Form
from .common import AnyRun, AsForm, AsJson, Lake, OneIteration
from .list_commands import list_rows

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader

COLUMNS = (
    *("iteration", "split", "answers", "abstained", "fact_score", "low", "high", "facts_unread"),
    "judge",
)


def facts(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Show FActScore: how far references support answers."""
    from ..lake.query.fact_figures import fact_figures
    from ..lake.query.runs import require_iteration

    def listed(run: "RunReader") -> "pl.LazyFrame":
        require_iteration(run, iteration)
        return fact_figures(run, iteration)

    list_rows(lake, name, listed, COLUMNS, form, as_json=as_json)
