# pyright: basic
"""The policy's training rows: their measures, how many a prompt gave, or why it gave none."""

from collections.abc import Sequence

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.panels import Lines, Panel
from .report_plot import ReportPlot, names_of
from .run_rows import are_several, by_iteration, none_made, rows_of, series_by

READING = (
    "Margins that shrink, prompts that give nothing, and chosen texts that repeat are signs that "
    "there is less and less to learn from."
)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MARGIN, PER_PROMPT, OUTCOME, SHARE = "margin", "rows a prompt", "outcome", "share"
ITERATIONS = 4
"""How many of the last iterations are drawn side by side."""
GROUP = ["iteration", "measure", "name"]
FULL = ("paired", "demonstrated", "unpaired")
"""The outcomes of prompts that gave rows to train on."""


def pairs_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the plot of the rows that pairing made of each iteration's prompts."""
    rows = rows_of(runs, pair_rows)
    return ReportPlot(
        name="pairs",
        title="Pairs: what there was to learn from",
        reading=READING,
        command=f"lpfloop pairs {names_of(runs)[0]}",
        rows=rows,
        panels=_panels(rows) if rows.height else (),
        missing="" if rows.height else none_made(runs, "rows to train on"),
    )


def pair_rows(run: RunReader) -> pl.DataFrame:
    """Return the measures of each iteration's rows to train on, by name.

    `margin`: a quantile of the reward of chosen less the reward of rejected answers; `rows a
    prompt`: the share of prompts that gave so many; `outcome`: the share of prompts with it;
    `share`: the share of rows whose chosen answer is a refinement, and of rows whose chosen text
    another row of the same prompt has, too. `count` is the number that a share is taken of.
    """
    made = _made(run)
    yields = run.scan("yields", columns={"iteration", "outcome", "made"})
    outcomes = [
        yields.group_by("iteration", name=name)
        .agg(measure=pl.lit(measure), part=pl.len())
        .with_columns(count=pl.col("part").sum().over("iteration"))
        for measure, name in (
            (OUTCOME, pl.col("outcome")),
            (PER_PROMPT, pl.col("made").cast(pl.String)),
        )
    ]
    shares = [
        of.with_columns(value=pl.col("part") / pl.col("count"))
        for of in (*outcomes, *_chosen_shares(run, made))
    ]
    every = [_margins(run), *(of.select(*GROUP, "value", "count") for of in shares)]
    return pl.concat([of.collect(engine="streaming") for of in every]).sort(GROUP)


def _made(run: RunReader) -> pl.LazyFrame:
    """Return the chosen answer of each row that was trained on, and a hash of its text.

    Of unpaired answers, those that are successes.
    """
    sources = (
        ("pairs", "chosen_id", "chosen"),
        ("demonstrations", "candidate_id", "completion"),
    )
    frames = [
        *(
            (run.scan(table, columns={"iteration", "prompt_id", identity, said}), identity, said)
            for table, identity, said in sources
        ),
        (run.scan("unpaired_answers").filter("label"), "candidate_id", "completion"),
    ]
    return pl.concat(
        [
            frame.select(
                "iteration",
                "prompt_id",
                pl.col(identity).alias("candidate_id"),
                pl.col(said).list.last().struct.field("content").hash().alias("text"),
            )
            for frame, identity, said in frames
        ]
    )


def _margins(run: RunReader) -> pl.LazyFrame:
    columns = {"iteration", "chosen_reward", "rejected_reward"}
    margin = pl.col("chosen_reward") - pl.col("rejected_reward")
    each = run.scan("pairs", columns=columns).select("iteration", margin=margin).drop_nulls()
    quantiles = [pl.col("margin").quantile(q, "linear").alias(f"{q:.0%}") for q in QUANTILES]
    found = each.group_by("iteration").agg(*quantiles, count=pl.len())
    long = found.unpivot(
        index=["iteration", "count"], variable_name="name", value_name="value"
    ).with_columns(measure=pl.lit(MARGIN))
    return long.select(*GROUP, "value", "count")


def _chosen_shares(run: RunReader, made: pl.LazyFrame) -> list[pl.LazyFrame]:
    """Return how many rows have a refinement, or a text of another row of their prompt, chosen."""
    kinds = run.scan("candidates", columns={"candidate_id", "kind"}).filter(
        pl.col("kind") == "refinement"
    )
    refined = (
        made.join(kinds, on="candidate_id", how="left")
        .group_by("iteration")
        .agg(part=pl.col("kind").is_not_null().sum(), count=pl.len())
        .with_columns(name=pl.lit("chosen is a refinement"))
    )
    repeated = (
        made.group_by("iteration", "prompt_id")
        .agg(part=pl.len() - pl.col("text").n_unique(), count=pl.len())
        .group_by("iteration")
        .agg(pl.col("part", "count").sum())
        .with_columns(name=pl.lit("chosen repeats another's text"))
    )
    return [
        of.select("iteration", "name", "part", "count", measure=pl.lit(SHARE))
        for of in (refined, repeated)
    ]


def _panels(told: pl.DataFrame) -> list[Panel]:
    percent = pl.when(pl.col("measure") == MARGIN).then("value").otherwise(100 * pl.col("value"))
    rows = told.with_columns(value=percent)
    measures = dict(rows.partition_by("measure", as_dict=True, include_key=True))
    found = {name: part for (name,), part in measures.items()}
    panels: list[Panel] = []
    if MARGIN in found:
        panels.append(_margin_panel(found[MARGIN]))
    if PER_PROMPT in found:
        panels.append(_per_prompt(found[PER_PROMPT]))
        empty = found[OUTCOME].filter(~pl.col("name").is_in(FULL))
        panels += by_iteration(
            empty, "name", "value", title="Why prompts gave none", y_label="% of prompts"
        )
    if SHARE in found:
        panels += by_iteration(
            found[SHARE], "name", "value", title="What was chosen", y_label="% of rows"
        )
    return panels


def _margin_panel(rows: pl.DataFrame) -> Lines:
    wide = rows.pivot("name", index=["run", "iteration"], values="value")
    return Lines(
        series=series_by(wide, "run", "50%", band=("25%", "75%")),
        title="Reward of chosen less rejected",
        x_label="iteration",
        y_label="median, and the middle half",
        level=0,
        whole_x=True,
    )


def _per_prompt(rows: pl.DataFrame) -> Lines:
    """Return the shares of prompts by how many rows they gave, in the last iterations.

    Of several runs that is the last one of each.
    """
    counted = rows.with_columns(
        made=pl.col("name").cast(pl.Int64), label=pl.format("iteration {}", "iteration")
    )
    several = are_several(rows)
    latest = pl.col("iteration").max().over("run") - (0 if several else ITERATIONS - 1)
    shown = counted.filter(pl.col("iteration") >= latest)
    return Lines(
        series=series_by(shown, "run" if several else "label", "value", x="made"),
        title="Rows to train on by prompt",
        x_label="rows of a prompt",
        y_label="% of prompts",
        whole_x=True,
    )
