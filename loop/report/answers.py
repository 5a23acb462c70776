# pyright: basic
"""How long answers are and how they repeat: by iteration, and chosen against rejected."""

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.style_alarms import REPETITION, STYLE
from .section import Section, over_iterations

SIDES = ("chosen", "rejected")
SQL = "SELECT iteration, kind, avg(completion_tokens), count(*) FROM candidates GROUP BY ALL"


def answers_section(run: RunReader) -> Section:
    """Return the lengths of answers by iteration and side of the pairs, and their repetition."""
    lengths, style = length_rows(run), _style(run)
    return Section(
        name="answers",
        title="Answers: length and repetition",
        reading=(
            "Answers that grow longer from iteration to iteration, or chosen ones that are longer "
            "or repeat more than rejected ones, show a policy that learns a manner rather than to "
            "be right."
        ),
        command=f'lpfloop sql "{SQL}" --run {run.folder.name}',
        tables={"answers": lengths, "repetition": style},
        panels=[
            *over_iterations(lengths, "part", "mean", title="Mean length", y_label="tokens"),
            *over_iterations(
                style, "part", "percent", title="Repetition within an answer", y_label="share, %"
            ),
        ],
        missing="no answer of the run says how many tokens it has",
    )


def length_rows(run: RunReader) -> pl.DataFrame:
    """Return the mean tokens of each iteration's answers: of each kind, and each side of pairs."""
    columns = {"candidate_id", "iteration", "kind", "completion_tokens"}
    answers = run.scan("candidates", columns=columns).filter(pl.col("completion_tokens") > 0)
    sides = [
        run.scan("pairs", columns={"iteration", f"{side}_id"})
        .select("iteration", candidate_id=f"{side}_id", part=pl.lit(side))
        .join(answers.select("candidate_id", "completion_tokens"), on="candidate_id")
        for side in SIDES
    ]
    every = [answers.with_columns(part="kind"), *sides]
    means = [
        rows.group_by("iteration", "part").agg(
            mean=pl.col("completion_tokens").mean(), count=pl.len()
        )
        for rows in every
    ]
    return pl.concat(means).sort("part", "iteration").collect(engine="streaming")


def _style(run: RunReader) -> pl.DataFrame:
    """Return how much of its answers each policy repeats, and each side of its pairs."""
    return (
        run.scan("evaluations")
        .filter(pl.col("benchmark") == STYLE, pl.col("metric").str.ends_with(f":{REPETITION}"))
        .with_columns(
            part=pl.col("metric").str.split(":").list.first(), percent=100 * pl.col("value")
        )
        .filter(pl.col("part").is_in(["policy", *SIDES]))
        .select("iteration", "part", "percent")
        .sort("part", "iteration")
        .collect()
    )
