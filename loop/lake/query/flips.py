"""The groups of prompts that gained and lost most, which a mean hides, with example prompts.

A group is a family of prompts, or a task if its prompts name no family.
"""

from dataclasses import dataclass
from typing import Any

import polars as pl

from ....stores.lake import RunReader
from .figures import deciding_of, figure_values
from .model_figures import RunResults

EXAMPLES = 2
GROUP = pl.coalesce("family", "task").alias("group")
"""The group of a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """How a figure of a group of `n` prompts changed; `better` and `worse` are some of its ids.

    The most changed prompts come first; `gained` and `lost` count all changed ones.
    """

    group: str
    task: str
    n: int
    before: float
    after: float
    gained: int
    lost: int
    better: tuple[str, ...]
    worse: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMost:
    """The group that M_`after` lost most of, against M_`before`, by a figure."""

    figure: str
    before: int
    after: int
    change: GroupChange


def group_changes(paired: pl.DataFrame, *, examples: int = EXAMPLES) -> list[GroupChange]:
    """Return the change of each group, the largest loss first.

    `paired` has a row for each prompt, with `task`, `family`, `value` and `value_after`.
    """
    change = pl.col("value_after") - pl.col("value")

    def ids(most: pl.Expr, *, down: bool) -> pl.Expr:
        return pl.col("prompt_id").filter(most).sort_by(change.filter(most), descending=not down)

    rows = (
        paired.sort("prompt_id")
        .group_by(GROUP)
        .agg(
            pl.col("task").first(),
            n=pl.len(),
            before=pl.col("value").mean(),
            after=pl.col("value_after").mean(),
            gained=(change > 0).sum(),
            lost=(change < 0).sum(),
            better=ids(change > 0, down=False).head(examples),
            worse=ids(change < 0, down=True).head(examples),
        )
        .sort(pl.col("after") - pl.col("before"), "group")
    )
    found = list[GroupChange]()
    for row in rows.iter_rows(named=True):
        sides: dict[str, Any] = {name: tuple(row[name]) for name in ("better", "worse")}
        found.append(GroupChange(**(row | sides)))
    return found


def lost_since(run: RunReader, results: RunResults) -> LostMost | None:
    """Return the group in which the model reported by `results` lost most since M_0, if any."""
    if results.split is None:
        return None
    return lost_most(run, results.split, results.models[0].iteration, results.reported.iteration)


def lost_most(run: RunReader, split: str, before: int, after: int) -> LostMost | None:
    """Return the group that lost most in the figure that compares models; None if no group lost."""
    figure = deciding_of(run, split)
    if figure is None or before == after:
        return None
    values = figure_values(run, split, figure.name)
    first, last = (values.filter(pl.col("iteration") == number) for number in (before, after))
    paired = first.join(last.select("prompt_id", value_after="value"), on="prompt_id")
    groups = group_changes(paired)
    if not groups or groups[0].after >= groups[0].before:
        return None
    return LostMost(figure=figure.name, before=before, after=after, change=groups[0])
