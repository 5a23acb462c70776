"""The verdict of several votes on the same two answers: the majority, people's before models'.

Each annotator's last vote counts. If people voted, only they count. Equal numbers of votes are a
tie; if no vote could be read, nothing is decided.
"""

import polars as pl

from .judged_candidates import TRUSTED

FIRST, SECOND = "first", "second"
_SIDES = ["_one", "_other"]


def majority(preferences: pl.DataFrame) -> pl.DataFrame:
    """Return one comparison of each two answers with votes, in the order of first votes.

    Reads and returns the columns `judged_candidates.READ`; the ids are from each two answers' first
    votes.
    """
    turned = pl.col("first_id") > pl.col("second_id")
    people = pl.any_horizontal(pl.col("annotator").str.starts_with(name) for name in TRUSTED)
    votes = (
        preferences.with_columns(
            _one=pl.when(turned).then("second_id").otherwise("first_id"),
            _other=pl.when(turned).then("first_id").otherwise("second_id"),
            _people=people & pl.col("preferred").is_not_null(),
            _for=pl.when(pl.col("preferred") == FIRST)
            .then(1)
            .when(pl.col("preferred") == SECOND)
            .then(-1)
            .when(pl.col("preferred").is_not_null())
            .then(0)
            * pl.when(turned).then(-1).otherwise(1),
        )
        .unique([*_SIDES, "annotator"], keep="last", maintain_order=True)
        .filter(pl.col("_people") | ~pl.col("_people").any().over(_SIDES))
    )
    balance = pl.col("_for").sum()
    scores = {
        "first_score": pl.when(turned).then("second_score").otherwise("first_score"),
        "second_score": pl.when(turned).then("first_score").otherwise("second_score"),
    }
    decided = votes.group_by(_SIDES, maintain_order=True).agg(
        pl.col("preference_id", "prompt_id").first(),
        annotator=pl.col("annotator").first(),
        **{name: score.drop_nulls().last() for name, score in scores.items()},
        preferred=pl.when(pl.col("_for").is_null().all())
        .then(None)
        .when(balance > 0)
        .then(pl.lit(FIRST))
        .when(balance < 0)
        .then(pl.lit(SECOND))
        .otherwise(pl.lit("tie")),
    )
    named = decided.with_columns(first_id="_one", second_id="_other")
    return named.select(preferences.columns)
