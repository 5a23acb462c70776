# pyright: basic
"""What there was to learn from: pairs and their margins, and whether refining answers helped.

A refinement is compared with the answer that it refines by the ratings that the same critic gave
both. Intervals are over clusters of prompts, and undefined for a single cluster.
"""

import json
from collections.abc import Iterator

import polars as pl

from ...stores.lake import RunReader
from ...stores.records import SCORED
from ..data.judged_candidates import READ, Deciding, is_trusted, verdicts
from ..evaluation.plots import Intervals, Lines, Panel, PlottedValue
from ..lake.query.figures import clustered_means
from ..lake.statistics.share_interval import NORMAL, share_interval
from .section import Section, over_iterations, series_by

ALL_ASPECTS = "all aspects"
QUANTILES = (0.25, 0.5, 0.75)
MARGIN, OUTCOME = "margin", "outcome"
FULL = ("paired", "demonstrated", "unpaired")
"""The outcomes of prompts that gave rows to train on."""
GROUP = ("iteration", "measure", "name")
ROUNDS = {
    **dict.fromkeys(("iteration", "round", "prompts", "refined", "passed"), pl.Int64),
    **dict.fromkeys(("share", "low", "high"), pl.Float64),
}


def pairs_section(run: RunReader) -> Section:
    """Return the measures of each iteration's pairs, and the gain by refining."""
    pairs, gains, rounds = pair_rows(run), refinement_rows(run), round_rows(run)
    return Section(
        name="pairs",
        title="Pairs and refinements: what there was to learn from",
        reading=(
            "Margins that shrink and prompts that give nothing are signs that there is less and "
            "less to learn from. Right of the line refining raised more ratings than it lowered; "
            "an aspect left of it is one that refining makes worse."
        ),
        command=f"lpfloop pairs {run.folder.name}",
        tables={"pairs": pairs, "refinement": gains, "rounds": rounds},
        panels=[*_pair_panels(pairs), *_gain_panels(gains), *_round_panel(rounds)],
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


def round_rows(run: RunReader) -> pl.DataFrame:
    """Return how many of an iteration's `prompts` have an answer that passes, after each round.

    Round 0 are the samples, round 1 refinements of those, round 2 refinements of refinements.
    `refined` counts the prompts with refinements in the round, `passed` the prompts with an answer
    of this round or one before that the critic passes; `share` is their share.
    """
    answers = _in_rounds(run)
    if answers.filter(pl.col("round") > 0).is_empty():
        return pl.DataFrame(schema=ROUNDS)
    deciding = Deciding.of(json.loads(run.journal.meta("config") or "{}"))
    verdict_rows = verdicts(run.scan("critiques").select(READ["critiques"]), deciding)
    passed = (
        verdict_rows.filter("success").select("candidate_id").unique().collect(engine="in-memory")
    )
    # Not inside the aggregation, which would look all ids up once per prompt.
    passes = pl.col("candidate_id").is_in(passed["candidate_id"].implode())
    first = answers.with_columns(passed=pl.when(passes).then("round"))
    prompts = first.group_by("iteration", "prompt_id").agg(pl.col("passed").min())
    rounds = answers.group_by("iteration", "round").agg(refined=pl.col("prompt_id").n_unique())
    values = prompts.join(rounds, on="iteration").with_columns(
        value=(pl.col("passed") <= pl.col("round")).fill_null(value=False).cast(pl.Float64)
    )
    means = clustered_means(run, values.lazy(), ("iteration", "round")).collect()
    rows = [
        (*key, n, refined if key[1] else 0, round(share * n), share, *(within or (None, None)))
        for *key, share, error, n, refined in means.join(rounds, on=["iteration", "round"])
        .sort("iteration", "round")
        .iter_rows()
        for within in [share_interval(share, error, n)]
    ]
    return pl.DataFrame(rows, schema=ROUNDS, orient="row")


def _in_rounds(run: RunReader) -> pl.DataFrame:
    """Return the samples and refinements of a run, each with its round."""
    columns = ("iteration", "prompt_id", "candidate_id", "parent_id", "kind")
    every = (
        run.scan("candidates", columns={*columns})
        .filter(pl.col("kind").is_in(["sample", "refinement"]), pl.col("iteration") > 0)
        .select(columns)
        .collect(engine="streaming")
    )
    made, found, number = every.filter(kind="sample"), list[pl.DataFrame](), 0
    while made.height or not found:
        found.append(made.with_columns(round=pl.lit(number, pl.Int64)))
        parents = made.select(parent_id="candidate_id")
        refined = every.filter(kind="refinement")
        made, number = refined.join(parents, on="parent_id", how="semi"), number + 1
    return pl.concat(found)


def _round_panel(rows: pl.DataFrame) -> Iterator[Panel]:
    lines = rows.with_columns(
        pl.col("share", "low", "high") * 100, label=pl.format("iteration {}", "iteration")
    )
    series = series_by(lines, "label", "share", x="round", band=("low", "high"))
    if series:
        yield Lines(
            series=series,
            title="Prompts with an answer that passes",
            x_label="round of refinement",
            y_label="% of prompts",
            whole_x=True,
        )
