# pyright: basic
"""What there was to learn from: pairs and their margins, and whether refining answers helped.

A refinement is compared with the answer that it refines by the ratings that the same critic gave
both. Intervals are over clusters of prompts, and undefined for a single cluster.
"""

from collections.abc import Iterator

import polars as pl

from ...stores.lake import RunReader
from ...stores.records import SCORED
from ..data.judged_candidates import is_trusted
from ..evaluation.plots import Intervals, Panel, PlottedValue
from ..lake.query.figures import clustered_means
from ..lake.statistics.intervals import NORMAL
from .section import Section, over_iterations

ALL_ASPECTS = "all aspects"
QUANTILES = (0.25, 0.5, 0.75)
MARGIN, OUTCOME = "margin", "outcome"
FULL = ("paired", "demonstrated", "unpaired")
"""The outcomes of prompts that gave rows to train on."""
GROUP = ("iteration", "measure", "name")


def pairs_section(run: RunReader) -> Section:
    """Return the measures of each iteration's pairs, and the gain by refining."""
    pairs, gains = pair_rows(run), refinement_rows(run)
    return Section(
        name="pairs",
        title="Pairs and refinements: what there was to learn from",
        reading=(
            "Margins that shrink and prompts that give nothing are signs that there is less and "
            "less to learn from. Right of the line refining raised more ratings than it lowered; "
            "an aspect left of it is one that refining makes worse."
        ),
        command=f"lpfloop pairs {run.folder.name}",
        tables={"pairs": pairs, "refinement": gains},
        panels=[*_pair_panels(pairs), *_gain_panels(gains)],
        missing="there is no pair, demonstration or refinement",
    )


def pair_rows(run: RunReader) -> pl.DataFrame:
    """Return the measures of each iteration's rows to train on, by name.

    `margin`: a quantile of the reward of chosen less the reward of rejected answers; `outcome`:
    the share of prompts with it. `count` is the number that it is taken of.
    """
    outcomes = (
        run.scan("pairing_outcomes", columns={"iteration", "outcome"})
        .group_by("iteration", name="outcome")
        .agg(measure=pl.lit(OUTCOME), part=pl.len())
        .with_columns(count=pl.col("part").sum().over("iteration"))
        .with_columns(value=pl.col("part") / pl.col("count"))
        .select(*GROUP, "value", "count")
    )
    every = [_margins(run), outcomes]
    return pl.concat([of.collect(engine="streaming") for of in every]).sort(GROUP)


def _margins(run: RunReader) -> pl.LazyFrame:
    margin = pl.col("chosen_reward") - pl.col("rejected_reward")
    each = run.scan("pairs", columns={"iteration", "chosen_reward", "rejected_reward"}).select(
        "iteration", margin=margin
    )
    quantiles = [pl.col("margin").quantile(q, "linear").alias(f"{q:.0%}") for q in QUANTILES]
    return (
        each.drop_nulls()
        .group_by("iteration")
        .agg(*quantiles, count=pl.len())
        .unpivot(index=["iteration", "count"], variable_name="name", value_name="value")
        .with_columns(measure=pl.lit(MARGIN))
        .select(*GROUP, "value", "count")
    )


def _pair_panels(rows: pl.DataFrame) -> Iterator[Panel]:
    margins = rows.filter(measure=MARGIN)
    if margins.height:
        wide = margins.pivot("name", index="iteration", values="value")
        yield from over_iterations(
            wide.with_columns(label=pl.lit("median")),
            "label",
            "50%",
            title="Reward of chosen less rejected",
            y_label="median, and the middle half",
            level=0,
            band=("25%", "75%"),
        )
    percent = rows.with_columns(value=100 * pl.col("value"))
    empty = percent.filter(pl.col("measure") == OUTCOME, ~pl.col("name").is_in(FULL))
    yield from over_iterations(
        empty, "name", "value", title="Why prompts gave no row", y_label="% of prompts"
    )


def refinement_rows(run: RunReader) -> pl.DataFrame:
    """Return the gain by refining of each iteration and aspect, and over all aspects.

    `gain` is the share of ratings that rose less the share that fell, from `low` to `high`; over
    all aspects an answer's mean rating is compared. `before` and `after` are mean ratings.
    """
    refined = (
        run.scan("candidates")
        .filter(pl.col("kind") == "refinement", pl.col("parent_id").is_not_null())
        .select("iteration", "prompt_id", "candidate_id", "parent_id")
        .collect(engine="streaming")
    )
    rated = _rated_refinements(run, refined).lazy()
    same = ["critic", "sample", "aspect"]
    both = (
        refined.lazy()
        .join(rated, on="candidate_id")
        .join(
            rated, left_on=["parent_id", *same], right_on=["candidate_id", *same], suffix="_before"
        )
        .select(
            *("iteration", "prompt_id", "candidate_id", "aspect"),
            before=pl.col("rating_before").cast(pl.Float64),
            after=pl.col("rating").cast(pl.Float64),
        )
    )
    means = both.group_by("iteration", "prompt_id", "candidate_id").agg(
        pl.lit(ALL_ASPECTS).alias("aspect"), pl.col("before", "after").mean()
    )
    keys = ("iteration", "aspect")
    compared = pl.concat([both, means.select(both.collect_schema().names())]).with_columns(
        value=(pl.col("after") - pl.col("before")).sign()
    )
    counts = compared.group_by(keys).agg(
        pl.col("before", "after").mean(),
        improved=(pl.col("value") > 0).sum(),
        worsened=(pl.col("value") < 0).sum(),
    )
    half = NORMAL * pl.col("stderr")
    return (
        clustered_means(run, compared, keys)
        .join(counts, on=keys)
        .with_columns(
            low=(pl.col("value") - half).clip(-1), high=(pl.col("value") + half).clip(None, 1)
        )
        .rename({"value": "gain"})
        .sort(keys)
        .collect(engine="streaming")
    )


def _rated_refinements(run: RunReader, refined: pl.DataFrame) -> pl.DataFrame:
    """Return models' ratings of the refinements and of the refined answers, without comments."""
    ids = pl.concat([refined["candidate_id"], refined["parent_id"]]).unique()
    aspect = pl.element().struct
    return (
        run.scan("critiques", columns={"candidate_id", "critic", "sample", "status", "aspects"})
        .filter(pl.col("status") == SCORED, ~is_trusted("critic"))
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


def _gain_panels(gains: pl.DataFrame) -> Iterator[Panel]:
    if gains.is_empty():
        return
    rows = gains.with_columns(pl.col("gain", "low", "high") * 100).with_columns(
        pl.col("low", "high").fill_null(pl.col("gain"))
    )
    last = rows.filter(iteration=rows["iteration"].max())
    yield Intervals(
        estimates=[
            PlottedValue(
                label=f"{row['aspect']} ({row['n']:,})",
                value=row["gain"],
                low=row["low"],
                high=row["high"],
            )
            for row in last.iter_rows(named=True)
        ],
        title=f"Gain by refining, iteration {last['iteration'][0]}",
        x_label="% of ratings raised less % lowered",
        level=0,
    )
