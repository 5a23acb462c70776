"""The group of prompts that lost most, which a mean hides, with example prompts.

A group is a family of prompts, or a task if its prompts name no family.
"""

from dataclasses import dataclass
from typing import Any

import polars as pl

from ....stores.lake import RunReader
from .figures import deciding_of, figure_values
from .model_figures import RunResults

EXAMPLES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMost:
    """The group that M_`after` lost most of, against M_`before`, by a figure.

    It has `n` prompts. `gained` and `lost` count those that changed; `worse` are the ids of the
    most changed ones.
    """

    figure: str
    before: int
    after: int
    group: str
    task: str
    n: int
    value_before: float
    value_after: float
    gained: int
    lost: int
    worse: tuple[str, ...]


def lost_since(run: RunReader, results: RunResults) -> LostMost | None:
    """Return the group in which the model reported by `results` lost most since M_0, if any.

    The figure is the one that compares models.
    """
    split = results.split
    figure = None if split is None else deciding_of(run, split)
    if split is None or figure is None:
        return None
    numbers = results.models[0].iteration, results.reported.iteration
    values = figure_values(run, split, figure.name)
    first, last = (values.filter(pl.col("iteration") == number) for number in numbers)
    change = pl.col("value_after") - pl.col("value")
    groups = (
        first.join(last.select("prompt_id", value_after="value"), on="prompt_id")
        .sort(change, "prompt_id")
        .group_by(pl.coalesce("family", "task").alias("group"))
        .agg(
            pl.col("task").first(),
            n=pl.len(),
            value_before=pl.col("value").mean(),
            value_after=pl.col("value_after").mean(),
            gained=(change > 0).sum(),
            lost=(change < 0).sum(),
            worse=pl.col("prompt_id").filter(change < 0).head(EXAMPLES),
        )
        .filter(pl.col("value_after") < pl.col("value_before"))
        .sort(pl.col("value_after") - pl.col("value_before"), "group")
        .to_dicts()
    )
    if not groups:
        return None
    most: dict[str, Any] = {**groups[0], "worse": tuple(groups[0]["worse"])}
    return LostMost(figure=figure.name, before=numbers[0], after=numbers[1], **most)
