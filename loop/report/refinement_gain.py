# pyright: basic
"""Did refining help? The ratings of a candidate against its refinements' ratings, by aspect.

A refinement is compared with the answer that it refines by the ratings that the same critic gave
both. If one of the two could not be parsed, they are not compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ...stores.lake import RunReader
from ...stores.records import SCORED
from ..data.judged_candidates import trusted
from ..data.stage_names import of_any_round
from ..evaluation.panels import Intervals, Lines, Panel, PlottedValue
from ..lake.statistics.share_interval import NORMAL
from .report_plot import ReportPlot, names_of
from .run_rows import are_several, by_iteration, none_made, rows_of, with_clusters

LEVELS = {-1: "failure", 0: "moderate", 1: "success"}
ALL_ASPECTS = "all aspects"
REFINED = "refine"
"""The stage that draws refinements; those that judge them end with its name."""
READING = (
    "Right of the line refining raised more ratings than it lowered; an aspect left of it is one "
    "that refining makes worse, and the last panels say what each raised rating costs."
)


def refinement_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the plot of the gain by refining, by aspect and iteration."""
    rows = rows_of(runs, refinement_rows)
    return ReportPlot(
        name="refinement",
        title="Refinement: before against after",
        reading=READING,
        command=f"lpfloop candidates {names_of(runs)[0]} --kind refinement",
        rows=rows,
        panels=list(_panels(rows)) if rows.height else (),
        missing="" if rows.height else none_made(runs, "refinement whose ratings could be read"),
    )


def refinement_rows(run: RunReader) -> pl.DataFrame:
    """Return the gain of each iteration and aspect, and the cost of each refinement that gained.

    `gain` is the share of ratings that rose less the share that fell, from `low` to `high`.
    Refinements of answers to prompts of one cluster are not independent of each other, so the
    interval is over clusters; it is undefined for one cluster. `failure_to_success` and its like
    count ratings; over all aspects an answer's mean rating is compared.
    """
    compared = _compared(run)
    change = (pl.col("after") - pl.col("before")).sign()
    counts = [
        ((pl.col("before") == a) & (pl.col("after") == b)).sum().alias(f"{before}_to_{after}")
        for a, before in LEVELS.items()
        for b, after in LEVELS.items()
    ]
    by_cluster = compared.group_by("iteration", "aspect", "cluster").agg(
        pl.len().alias("n"),
        (change > 0).sum().alias("improved"),
        (change < 0).sum().alias("worsened"),
        pl.col("before").sum().alias("before"),
        pl.col("after").sum().alias("after"),
        *counts,
    )
    found = (
        by_cluster.group_by("iteration", "aspect")
        .agg(
            pl.exclude("cluster").sum(),
            gain=_net().sum() / pl.col("n").sum(),
            spread=(_net() - pl.col("n") * _net().sum() / pl.col("n").sum()).pow(2).sum(),
            held=pl.len(),
        )
        .collect(engine="streaming")
    )
    n, gain = pl.col("n"), pl.col("gain")
    held = pl.col("held")
    spread = (pl.col("spread") * held / (held - 1)).sqrt()
    half = pl.when(held > 1).then(NORMAL * spread / n)
    shares = found.with_columns(
        pl.col("before", "after") / n,
        improved_share=pl.col("improved") / n,
        worsened_share=pl.col("worsened") / n,
        low=(gain - half).clip(-1),
        high=(gain + half).clip(upper_bound=1),
    )
    costs = _costs(run)
    gained = pl.col("improved")
    whole = pl.col("aspect") == ALL_ASPECTS
    told = [
        pl.when(whole & (gained > 0)).then(pl.col(name) / gained).alias(f"{name}_per_improvement")
        for name in ("tokens", "seconds", "money")
    ]
    return (
        shares.drop("spread", "held")
        .join(costs, on="iteration", how="left")
        .with_columns(*told)
        .drop("tokens", "seconds", "money")
        .sort("iteration", "aspect")
    )


def _net() -> pl.Expr:
    return pl.col("improved").cast(pl.Float64) - pl.col("worsened")


def _compared(run: RunReader) -> pl.LazyFrame:
    """Return the two ratings of each aspect of each refinement, and the means over its aspects."""
    refined = _refined(run)
    rated = _rated(run, refined).lazy()
    same = ["critic", "sample", "aspect"]
    both = (
        refined.lazy()
        .join(rated, on="candidate_id")
        .join(
            rated,
            left_on=["parent_id", *same],
            right_on=["candidate_id", *same],
            suffix="_before",
        )
        .select(
            "iteration",
            "aspect",
            "cluster",
            "candidate_id",
            before=pl.col("rating_before").cast(pl.Float64),
            after=pl.col("rating").cast(pl.Float64),
        )
    )
    means = (
        both.group_by("iteration", "cluster", "candidate_id")
        .agg(pl.col("before", "after").mean())
        .with_columns(aspect=pl.lit(ALL_ASPECTS))
    )
    columns = ("iteration", "aspect", "cluster", "before", "after")
    return pl.concat([both.select(columns), means.select(columns)])


def _refined(run: RunReader) -> pl.DataFrame:
    """Return which refinement is of which answer, and the cluster of its prompt."""
    columns = {"candidate_id", "parent_id", "prompt_id", "iteration", "kind"}
    refined = (
        run.scan("candidates", columns=columns)
        .filter(pl.col("kind") == "refinement", pl.col("parent_id").is_not_null())
        .select("iteration", "candidate_id", "parent_id", "prompt_id")
        .collect(engine="streaming")
    )
    return with_clusters(run, refined)


def _rated(run: RunReader, refined: pl.DataFrame) -> pl.DataFrame:
    """Return models' ratings of the refinements and of the refined answers, without comments."""
    ids = pl.concat([refined["candidate_id"], refined["parent_id"]]).unique()
    aspect = pl.element().struct
    return (
        run.scan("critiques", columns={"candidate_id", "critic", "sample", "status", "aspects"})
        .filter(pl.col("status") == SCORED, ~trusted("critic"))
        .select(
            "candidate_id",
            "critic",
            pl.col("sample").fill_null(1),
            aspect=pl.col("aspects").list.eval(aspect.field("name")),
            rating=pl.col("aspects").list.eval(aspect.field("rating")),
        )
        .join(ids.to_frame().lazy(), on="candidate_id", how="semi")
        .collect(engine="streaming")
        .explode("aspect", "rating")
        .drop_nulls("rating")
    )


def _costs(run: RunReader) -> pl.DataFrame:
    """Return the cost of refining in each iteration: to draw and to judge the refinements."""
    stages = [s for s in run.journal.stages() if _is_refining(s.stage)]
    rows = {
        "iteration": [s.iteration for s in stages],
        "tokens": [s.totals.get("tokens", 0) + s.totals.get("prompt_tokens", 0) for s in stages],
        "seconds": [s.seconds for s in stages],
        "money": [s.totals.get("money", 0.0) for s in stages],
    }
    schema = dict.fromkeys(rows, pl.Float64) | {"iteration": pl.Int64}
    return pl.DataFrame(rows, schema=schema).group_by("iteration").sum()


def _is_refining(stage: str) -> bool:
    """Whether a stage draws refinements, or judges them, in any round."""
    first = of_any_round(stage)
    return first == REFINED or first.endswith(f":{REFINED}")


def _panels(told: pl.DataFrame) -> list[Panel]:
    several = are_several(told)
    rows = told.with_columns(pl.col("gain", "low", "high") * 100)
    last = rows.group_by("run").agg(pl.col("iteration").max())
    latest = rows.join(last, on=["run", "iteration"])
    panels: list[Panel] = [
        Intervals(
            estimates=[_estimate(row) for row in part.to_dicts()],
            title=f"{run}, iteration {part['iteration'][0]}" if several else _title(part),
            x_label="% of ratings raised less % lowered",
            level=0,
        )
        for (run,), part in latest.sort("run", "aspect").group_by("run", maintain_order=True)
    ]
    whole = rows.filter(pl.col("aspect") == ALL_ASPECTS)
    panels += by_iteration(
        whole if several else rows,
        "aspect",
        "gain",
        title="Gain by iteration",
        y_label="% raised less % lowered",
        level=0,
    )
    return [*panels, *_prices(whole)]


def _title(rows: pl.DataFrame) -> str:
    return f"Iteration {rows['iteration'][0]}: gain by aspect"


def _estimate(row: Mapping[str, Any]) -> PlottedValue:
    return PlottedValue(
        label=f"{row['aspect']} ({row['n']:,})",
        value=float(row["gain"]),
        low=float(row["gain"] if row["low"] is None else row["low"]),
        high=float(row["gain"] if row["high"] is None else row["high"]),
    )


def _prices(whole: pl.DataFrame) -> list[Lines]:
    """Return a panel for tokens and for money, if they were recorded."""
    units = {"tokens": "tokens", "money": "US dollars"}
    known = {
        name: unit
        for name, unit in units.items()
        if (whole[f"{name}_per_improvement"].fill_null(0) > 0).any()
    }
    return [
        panel
        for name, unit in known.items()
        for panel in by_iteration(
            whole,
            "aspect",
            f"{name}_per_improvement",
            title=f"{name.capitalize()} per better refinement",
            y_label=unit,
        )
    ]
