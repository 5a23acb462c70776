# pyright: basic
"""The steps of a run's trainings: one row a step, one column a number."""

import polars as pl

from ....stores.lake import RunReader
from .row_lists import ListError
from .runs import require_iteration

PLACE = ("iteration", "method", "step")


def steps(
    run: RunReader, *, iteration: int | None = None, method: str | None = None
) -> pl.LazyFrame:
    """Return the steps in their order; a number that a method does not have is null.

    Raises:
        ListError: if the run has no training by `method`.
    """
    require_iteration(run, iteration)
    numbers = run.scan("statistics", iteration=iteration).collect()
    if method is not None:
        known = sorted(numbers["method"].unique())
        if method not in known:
            raise ListError(f"--method {method}: trained by {', '.join(known) or 'nothing yet'}")
        numbers = numbers.filter(pl.col("method") == method)
    table = numbers.pivot("metric", index=list(PLACE), values="value", sort_columns=True)
    return table.sort(PLACE).lazy()
