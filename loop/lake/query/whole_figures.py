"""A model's figures, including those without values by prompt.

The win-rate at equal lengths is fitted to all comparisons at once, and the totals of a form of
scores are means of its categories' means.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import hypot
from typing import Any

import polars as pl

from ....stores.lake import RunReader
from ....stores.records import Scope
from ...data.splits import eval_set_of
from ..statistics.share_interval import NORMAL
from .figures import figure_interval
from .measured_change import USUAL_LEVEL
from .policy_figures import first_and
from .vocabulary import CONTROLLED, RATING

ALL: Scope = "all"
STEP_PREFIX = "^step-[0-9]+:"
BY_FORM = ":"
"""Stands in the names of figures that a form of scores has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigure:
    """A figure of M_t over `n` prompts: all, or the eval set, task or family called `name`.

    `low` and `high` are the 95 % interval of the value. `change` is against M_`against`, over
    `paired` prompts in `clusters` clusters, of which `better` have more of the figure and `worse`
    have less. Its bounds are the verdict's on M_t, if one exists for these prompts: each errs in at
    most a share `change_level` of comparisons. Bounds are None if clusters are too few, or values
    by prompt are missing.
    """

    split: str
    scope: Scope
    name: str
    figure: str
    iteration: int
    checkpoint_id: str
    n: int
    value: float
    low: float | None
    high: float | None
    against: int
    paired: int = 0
    clusters: int = 0
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    change_level: float | None = None
    better: int = 0
    worse: int = 0


def whole_figures(
    run: RunReader,
    split: str,
    made: Mapping[int, str],
    only: str | None = None,
    *,
    step: int | None = None,
) -> Iterator[ModelFigure]:
    """Give the figures without values by prompt: all, or `only` one."""
    own = pl.col("metric") == CONTROLLED
    of_form = pl.col("metric").str.contains(BY_FORM, literal=True)
    rated = pl.col("metric").str.starts_with(RATING)
    condition = own | (of_form & ~rated) if only is None else pl.col("metric") == only
    scored = run.scan("scores").filter(first_and(split, step)).select("metric").unique()
    numbers = (
        run.scan("evaluations")
        .filter(first_and(split, step), condition)
        .join(scored, on="metric", how="anti")
        .with_columns(pl.col("benchmark").str.replace(STEP_PREFIX, ""))
        .sort("benchmark", "metric", "iteration")
        .collect()
        .to_dicts()
    )
    for (benchmark, _), group in groupby(
        numbers, key=lambda row: (row["benchmark"], row["metric"])
    ):
        eval_set = eval_set_of(benchmark) if benchmark != split else None
        yield from _of_models(list(group), split, eval_set, made)


def _of_models(
    numbers: Sequence[dict[str, Any]], split: str, eval_set: str | None, made: Mapping[int, str]
) -> Iterator[ModelFigure]:
    """Give one figure of each model on a benchmark: a split, or a set of its prompts."""
    first = numbers[0]
    for number in numbers:
        value, low, high = number["value"], *_interval(number)
        change_low, change_high = _of_change(number, first)
        yield ModelFigure(
            split=split,
            scope=ALL if eval_set is None else "eval_set",
            name=eval_set or "",
            figure=number["metric"],
            iteration=number["iteration"],
            checkpoint_id=made[number["iteration"]],
            n=number["n"],
            value=value,
            low=low,
            high=high,
            against=first["iteration"],
            change=value - first["value"],
            change_low=change_low,
            change_high=change_high,
            change_level=None if change_low is None else USUAL_LEVEL,
        )


def _interval(number: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the bounds of a value."""
    found = figure_interval(number["metric"], number["value"], number["stderr"], number["n"])
    return found or (None, None)


def _of_change(
    number: Mapping[str, Any], first: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Return the bounds of a change; None if they are undefined.

    The win-rate's bounds are the value's if the first has no error, as M_0 against itself. For
    totals both errors count, as if the two had answered different prompts: an upper bound.
    """
    if number is first or number["stderr"] is None:
        return None, None
    if number["metric"] == CONTROLLED:
        low, high = _interval(number)
        if first["stderr"] or low is None or high is None:
            return None, None
        return low - first["value"], high - first["value"]
    if first["stderr"] is None:
        return None, None
    half = NORMAL * hypot(number["stderr"], first["stderr"])
    change = number["value"] - first["value"]
    return change - half, change + half
