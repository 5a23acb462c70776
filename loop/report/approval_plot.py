"""The critic's approval against verified correctness: over-optimisation as a picture.

As AlpacaFarm's Figure 5: a proxy on the x axis, the held-out measure on the y axis, a dot for each
iteration, joined by a line.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.panels import Lines, Panel, Series
from ..lake.query.figures import figure_values, shown_split
from ..lake.query.policy_figures import APPROVAL, VERIFIED
from ..lake.query.told_figures import figure_label, scaled
from .report_plot import ReportPlot, names_of

PROXIES = (APPROVAL.name, "reward", "win_rate", "kl")
FAMILIES = 8
"""So many families are drawn: the ones whose approval grew most beyond correctness."""
MUCH = 0.05
FEWEST = 8
"""Prompts below which a family is not drawn."""
MISSING = "no model was both verified and judged on the same prompts"
SCHEMA = {
    "run": pl.String,
    "scope": pl.String,
    "name": pl.String,
    "proxy": pl.String,
    "iteration": pl.Int64,
    "x": pl.Float64,
    "verified": pl.Float64,
    "n": pl.UInt32,
}


def approval_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return proxies against verified success, for each iteration."""
    rows = pl.concat([pl.DataFrame(schema=SCHEMA), *map(_rows, runs)], how="diagonal_relaxed")
    several = rows["run"].n_unique() > 1
    return ReportPlot(
        name="approval",
        title="Approval against verified success",
        reading=(
            "Follow a line from dot to dot, an iteration each, to the one that is named: a line "
            "that runs to the right without rising is a policy that learns to please its judge; "
            "below the diagonal the critic approves more than is right."
        ),
        command=f"lpfloop status {names_of(runs)[0]} --wide",
        rows=rows,
        panels=[*_panels(rows, several=several)],
        missing=MISSING,
        notes=_notes(rows) if not several else (),
    )


def _rows(run: RunReader) -> pl.DataFrame:
    """Return the means of each proxy and of success over the prompts that have both."""
    split = shown_split(run)
    if split is None:
        return pl.DataFrame(schema=SCHEMA)
    values = figure_values(run, split)
    place = ("prompt_id", "iteration")
    right = values.filter(pl.col("figure") == VERIFIED.name).select(*place, verified="value")
    judged = values.filter(pl.col("figure").is_in(PROXIES)).join(right, on=place)
    scopes = (("all", pl.lit("all")), ("task", pl.col("task")), ("family", pl.col("family")))
    return pl.concat(
        [
            judged.with_columns(name=name)
            .drop_nulls("name")
            .group_by("name", "iteration", proxy="figure")
            .agg(x=pl.col("value").mean(), verified=pl.col("verified").mean(), n=pl.len())
            .with_columns(run=pl.lit(run.folder.name), scope=pl.lit(scope))
            .select(*SCHEMA)
            .sort("proxy", "name", "iteration")
            for scope, name in scopes
        ]
    )


def _panels(rows: pl.DataFrame, *, several: bool) -> Iterator[Panel]:
    if several:
        for proxy, own in _by_proxy(rows.filter(pl.col("scope") == "all")):
            yield _panel(own, "run", proxy, proxy)
        return
    for proxy, own in _by_proxy(rows):
        tasks = own.filter(pl.col("scope") == "task")
        whole = own.filter(pl.col("scope") == "all")
        drawn = pl.concat([whole, tasks]) if tasks["name"].n_unique() > 1 else whole
        yield _panel(drawn, "name", proxy, f"{proxy}, by task")
        if proxy == APPROVAL.name:
            names = _runaway(own)[:FAMILIES]
            if names:
                families = own.filter(pl.col("scope") == "family", pl.col("name").is_in(names))
                yield _panel(families, "name", proxy, "families approved beyond what is right")


def _by_proxy(rows: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [(p, own) for p in PROXIES if (own := rows.filter(pl.col("proxy") == p)).height]


def _panel(rows: pl.DataFrame, part: str, proxy: str, title: str) -> Panel:
    groups = rows.partition_by(part, as_dict=True, maintain_order=True)
    return Lines(
        series=[
            Series(
                label=str(name),
                x=[scaled(proxy, x) for x in own["x"]],
                y=[100 * y for y in own["verified"]],
                names=[*[""] * (own.height - 1), f"M_{own['iteration'][-1]}"],
            )
            for (name,), own in groups.items()
        ],
        title=title,
        x_label=figure_label(proxy),
        y_label="verified, %",
        diagonal=proxy == APPROVAL.name,
    )


def _runaway(rows: pl.DataFrame) -> list[str]:
    """Return the families whose approval grows beyond correctness, the worst first."""
    beyond = pl.col("x") - pl.col("verified")
    found = (
        rows.filter(pl.col("scope") == "family", pl.col("n") >= FEWEST)
        .sort("iteration")
        .group_by("name")
        .agg(first=beyond.first(), last=beyond.last())
        .filter(pl.col("last") > pl.max_horizontal(pl.lit(MUCH), pl.col("first")))
        .sort("last", "name", descending=[True, False])
    )
    return found["name"].to_list()


def _notes(rows: pl.DataFrame) -> list[str]:
    left_out = len(_runaway(rows.filter(pl.col("proxy") == APPROVAL.name))) - FAMILIES
    if left_out <= 0:
        return []
    return [f"{left_out} more families are approved beyond what is right; the rows have all"]
