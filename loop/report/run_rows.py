# pyright: basic
"""Helpers of plots of several runs: the rows of all, and a line for each of them."""

import json
from collections.abc import Callable, Sequence

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.panels import Bars, Heights, Lines, Series

MOST_SERIES = 8
"""A plot of more lines than colours cannot be read."""
MOST_PANELS = 4
"""The most panels of a plot with one for each value."""
OTHERS = "others"


def rows_of(runs: Sequence[RunReader], rows: Callable[[RunReader], pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all runs, below each other, each with the name of its run first."""
    named = [rows(run).select(pl.lit(run.folder.name).alias("run"), pl.all()) for run in runs]
    return pl.concat(named, how="diagonal_relaxed")


def with_clusters(run: RunReader, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the cluster of each row's prompt; a prompt without one is its own cluster."""
    named = run.scan("prompts", columns={"prompt_id", "cluster"}).unique("prompt_id").collect()
    joined = rows.join(named, on="prompt_id", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("cluster", "prompt_id"))


def recipe_of(run: RunReader) -> str:
    """Return the name of a run's recipe."""
    config = json.loads(run.journal.meta("config") or "{}")
    return str(config.get("recipe", {}).get("name", "unnamed"))


def none_made(runs: Sequence[RunReader], what: str) -> str:
    """Return a sentence that the runs lack `what`, and which recipes they follow."""
    each = ", ".join(f"{run.folder.name} (recipe {recipe_of(run)})" for run in runs)
    return f"there is no {what} in {each}"


def are_several(rows: pl.DataFrame) -> bool:
    """Whether the rows are of more than one run."""
    return rows["run"].n_unique() > 1


def series_by(
    rows: pl.DataFrame, label: str, y: str, *, x: str = "iteration", band: Sequence[str] = ()
) -> list[Series]:
    """Return a line for each value of `label`, of each run.

    `band` names the columns of the lower and the upper end of the band around a line, if every row
    of the line has both. The run's name is added if there are several runs.
    """
    known = rows.drop_nulls(y).sort("run", label, x)
    several = are_several(rows)
    found = list[Series]()
    keys = list(dict.fromkeys(("run", label)))
    for (run, *names), part in known.group_by(keys, maintain_order=True):
        told = [run, *names] if several or not names else names
        whole = band and not any(part[column].null_count() for column in band)
        low, high = (part[column].to_list() for column in band) if whole else ((), ())
        name = ": ".join(map(str, dict.fromkeys(told)))
        series = Series(label=name, x=part[x].to_list(), y=part[y].to_list(), low=low, high=high)
        found.append(series)
    return found


def each_line(
    rows: pl.DataFrame, label: str, y: str, *, x: str, band: Sequence[str] = ()
) -> list[tuple[str, list[Series]]]:
    """Return the lines of each panel, and the panel's name.

    For one run, all lines are in one panel without a name. For several, each value of `label` has a
    panel with a line for each run: the largest values come first.
    """
    if rows.is_empty():
        return []
    if not are_several(rows):
        return [("", _largest(series_by(rows, label, y, x=x, band=band)))]
    most = rows.group_by(label).agg(pl.col(y).abs().max()).sort(-pl.col(y), label)
    return [
        (str(name), series_by(rows.filter(pl.col(label) == name), "run", y, x=x, band=band))
        for name in most[label].to_list()[:MOST_PANELS]
    ]


def _largest(series: Sequence[Series]) -> list[Series]:
    """Return as many lines as there are colours, those that go furthest from 0."""
    ordered = sorted(series, key=lambda one: -max(map(abs, one.y), default=0))
    return sorted(ordered[:MOST_SERIES], key=lambda one: one.label)


def by_iteration(
    rows: pl.DataFrame, label: str, y: str, *, title: str, y_label: str, level: float | None = None
) -> list[Lines]:
    """Return the changes from iteration to iteration: a panel, or one a label of several runs."""
    return [
        Lines(
            series=series,
            title=titled(title, name),
            x_label="iteration",
            y_label=y_label,
            level=level,
            whole_x=True,
        )
        for name, series in each_line(rows, label, y, x="iteration")
    ]


def titled(title: str, name: str) -> str:
    """Return the title of a panel that is of something in particular; a name has its own line."""
    return f"{title}\n{name}" if name else title


def stacked(rows: pl.DataFrame, part: str, height: str, *, title: str, y_label: str) -> Bars:
    """Return a bar for each iteration of each run, made of the values of `part`, largest first.

    Parts beyond the number of colours are merged into one.
    """
    group = pl.format("{}", "iteration")
    if are_several(rows):
        group = pl.format("{}: {}", "run", "iteration")
    named = rows.sort("run", "iteration").with_columns(group=group, part=pl.col(part))
    totals = named.group_by("part").agg(pl.col(height).sum()).sort(-pl.col(height), "part")
    kept = totals["part"].to_list()
    if len(kept) > MOST_SERIES:
        kept = kept[: MOST_SERIES - 1]
        known = pl.col("part").is_in(kept)
        named = named.with_columns(part=pl.when(known).then("part").otherwise(pl.lit(OTHERS)))
        kept = [*kept, OTHERS]
    groups = named["group"].unique(maintain_order=True).to_list()
    sums = named.group_by("group", "part").agg(pl.col(height).sum())
    values = {(group, name): value for group, name, value in sums.iter_rows()}
    parts = [Heights(label=str(p), values=[values.get((g, p), 0.0) for g in groups]) for p in kept]
    alone = parts[0].label if len(parts) == 1 else ""
    return Bars(
        groups=groups,
        parts=parts,
        title=titled(title, alone),
        x_label="" if are_several(rows) else "iteration",
        y_label=y_label,
        stacked=True,
        lying=are_several(rows),
    )
