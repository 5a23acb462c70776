"""The figures that measure a policy's answers, prompt by prompt, under one name each.

Verified results have one name for every task (`verified`), the critic's ratings are one share
(`approval`), and every other metric keeps its name. Figures are not stored: they are computed from
the scores, so that older runs have them, too.
"""

from collections.abc import Sequence

import polars as pl

from ....stores.lake import RunReader
from ...data.splits import DEV, HELD_OUT, eval_set_benchmark, eval_set_of
from ..statistics.intervals import NORMAL, share_interval
from .policy_figures import (
    USUAL,
    first_and,
    measured_on,
    metrics_of,
    value_rows,
)
from .vocabulary import COUNTS, LENGTH, ORDER, SHARES


class NotMeasuredError(ValueError):
    """A run has measured neither the split nor, on it, the figure."""

    code = "LPF-203"


def figure_interval(
    figure: str, value: float, error: float | None, n: int
) -> tuple[float, float] | None:
    """Return the 95 % interval of a figure over `n` prompts with this error; None without one.

    The interval of a share stays between 0 and 1. The error is clustered by prompts.
    """
    if figure in SHARES:
        return share_interval(value, error, n)
    return None if error is None else (value - NORMAL * error, value + NORMAL * error)


def measured_metrics(scores: pl.LazyFrame) -> list[str]:
    """Return the names of the metrics among scores."""
    return scores.select(pl.col("metric").unique().sort()).collect()["metric"].to_list()


def clustered_means(run: RunReader, rows: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
    """Return the mean `value` of the rows of each key, with its standard error and their number.

    Rows have a `prompt_id`. The error is over clusters of prompts, as of `statistics.mean_error`: a
    prompt without a cluster is its own, and the error is null for a single cluster.
    """
    clusters = run.scan("prompts").select("prompt_id", "cluster").unique("prompt_id")
    named = rows.join(clusters, on="prompt_id", how="left", maintain_order="left")
    apart = pl.col("value") - pl.col("value").mean().over(keys)
    of_cluster = (
        named.with_columns(pl.coalesce("cluster", "prompt_id"), apart=apart)
        .group_by(*keys, "cluster")
        .agg(pl.col("value", "apart").sum(), n=pl.len())
    )
    n, held = pl.col("n").sum(), pl.len()
    spread = (pl.col("apart").pow(2).sum() * held / (held - 1)).sqrt() / n
    return of_cluster.group_by(keys).agg(
        value=pl.col("value").sum() / n,
        stderr=pl.when(held > 1).then(spread),
        n=n.cast(pl.Int64),
    )


def figure_values(
    run: RunReader, split: str, only: str | None = None, *, step: int | None = None
) -> pl.DataFrame:
    """Return all figures of a run on a split: a row for each policy, prompt and figure.

    With a `step` they are those of the first policy, and of policies published at that step. Each
    row has the groups of its prompt: `eval_set`, `task`, `family`, `source` and `cluster`; a
    prompt without a cluster is its own cluster.

    Raises:
        NotMeasuredError: if nothing was measured on the split, or `only` was not.
    """
    scores = run.scan("scores").filter(first_and(split, step))
    measured = measured_metrics(scores)
    figures = _figures(measured)
    if not figures:
        raise NotMeasuredError(f"run {run.folder.name} was not measured on {split!r}")
    chosen = [figure for figure in figures if only in (None, figure)]
    if not chosen:
        known = ", ".join(figures)
        raise NotMeasuredError(
            f"run {run.folder.name} lacks the figure {only!r} on {split!r}: it has {known}"
        )
    values = pl.concat([value_rows(scores, figure, measured) for figure in chosen])
    prompts = run.scan("prompts").select(
        "prompt_id", "eval_set", "task", "family", "source", "cluster"
    )
    return (
        values.join(prompts.unique("prompt_id", keep="first"), on="prompt_id", how="left")
        .with_columns(pl.coalesce("cluster", "prompt_id"))
        .sort("prompt_id", "figure", "iteration")
        .collect()
    )


def _figures(measured: Sequence[str]) -> list[str]:
    """Return the figures of the measured metrics, in display order."""
    used = {m for figure in USUAL for m in metrics_of(figure, measured)} | set(COUNTS)
    names = [f for f in USUAL if metrics_of(f, measured)]
    names += [metric for metric in measured if metric not in used]
    return sorted(names, key=place_of)


def place_of(figure: str) -> tuple[int, str]:
    """Return the sort key of a figure: the figures that choose models come first."""
    if figure in ORDER:
        return ORDER.index(figure), ""
    return len(ORDER) + (figure == LENGTH), figure


def deciding(measured: Sequence[str]) -> str | None:
    """Return the default figure to compare models by: the first usual one that was measured."""
    return next((figure for figure in USUAL if metrics_of(figure, measured)), None)


def deciding_of(run: RunReader, split: str) -> str | None:
    """Return the default figure to compare a run's models by on a split."""
    return deciding(measured_metrics(run.scan("scores").filter(measured_on(split))))


def shown_split(run: RunReader, requested: str | None = None) -> str | None:
    """Return the split whose figures are shown: `requested`, else held-out, else dev.

    `requested` can also be the name of a set of held-out prompts. None if nothing was measured.

    Raises:
        NotMeasuredError: if nothing was measured on `requested`.
    """
    numbers = run.scan("evaluations").select(pl.col("benchmark").unique()).collect()
    measured = numbers["benchmark"].to_list()
    found = {*measured, *(HELD_OUT for name in measured if eval_set_of(name) is not None)}
    if requested is not None and eval_set_benchmark(requested) in found:
        return eval_set_benchmark(requested)
    if requested is not None and requested not in found:
        sets = sorted(eval_set for name in measured if (eval_set := eval_set_of(name)) is not None)
        splits = [split for split in (HELD_OUT, DEV) if split in found]
        known = ", ".join([*splits, *sets]) or "nothing"
        raise NotMeasuredError(
            f"run {run.folder.name} was not measured on the split {requested!r}: it has {known}"
        )
    return requested or next((split for split in (HELD_OUT, DEV) if split in found), None)
