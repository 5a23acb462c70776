# pyright: basic
"""How long answers are: by iteration, and chosen against rejected."""

import polars as pl

from ...stores.lake import RunReader
from .section import Section, over_iterations

SIDES = ("chosen", "rejected")
SQL = "SELECT iteration, kind, avg(completion_tokens), count(*) FROM candidates GROUP BY ALL"


def answers_section(run: RunReader) -> Section:
    """Return the lengths of answers by iteration and side of the pairs."""
    lengths = length_rows(run)
    return Section(
        name="answers",
        title="Answers: length",
        reading=(
            "Answers that grow longer from iteration to iteration, or chosen ones that are longer "
            "than rejected ones, show a policy that learns a manner rather than to be right."
        ),
        command=f'lpfloop sql "{SQL}" --run {run.folder.name}',
        tables={"answers": lengths},
        panels=over_iterations(lengths, "part", "mean", title="Mean length", y_label="tokens"),
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
