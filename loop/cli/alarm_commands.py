"""The command that lists a run's alarms: `alarms`."""

from typing import TYPE_CHECKING

from ...stores.address import DEFAULT_LAKE
from .common import AnyRun, Lake, Limit, OneIteration
from .list_commands import list_rows
from .output import RowOutput

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader

COLUMNS = ("iteration", "code", "severity", "message", "remedy", "examples")


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

    list_rows(lake, name, listed, COLUMNS, out)
