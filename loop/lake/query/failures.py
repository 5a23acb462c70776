# pyright: basic
"""What went wrong with candidates: failed aspects, unread critiques, cut answers."""

import polars as pl

from ....stores.lake import RunReader
from ....stores.records import SCORED
from .forms import By
from .row_lists import Listing, RowSelection, rating_conditions

STATUS = {-1: "failure", 0: "moderate"}
"""The names of the ratings below success."""
COLUMNS = (
    *("iteration", "prompt_id", "candidate_id", "task", "kind", "status", "aspect", "rating"),
    *("reward", "completion_tokens", "text"),
)


def failures(run: RunReader, wanted: RowSelection) -> pl.LazyFrame:
    """Return what went wrong with candidates, one row for each reason.

    The status is failure (an aspect rated -1), moderate (0), the reason why a critique is unscored,
    or how a candidate ended that is not whole. The text is the aspect's comment, the unread reply,
    or the answer that is not whole. The length is in tokens.
    """
    reasons = pl.concat([_said(run, wanted), _cut(run, wanted)], how="diagonal")
    conditions = []
    if wanted.aspect is not None:
        conditions.append(pl.col("aspect") == wanted.aspect)
    if wanted.rating is not None:
        conditions.append(pl.col("rating") == wanted.rating)
    return Listing(
        run=run,
        frame=reasons.with_columns(length="completion_tokens"),
        columns=COLUMNS,
        texts=[pl.col("text")],
        conditions=conditions,
    ).wanted(wanted)


def counted(failed: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Return the number of failures of each sort, and of their candidates, most first."""
    groups = list(dict.fromkeys((by.value, "status")))
    counts = failed.group_by(groups).agg(
        failures=pl.len(), candidates=pl.col("candidate_id").n_unique()
    )
    return counts.sort("failures", *groups, descending=[True, *[False] * len(groups)])


def _said(run: RunReader, wanted: RowSelection) -> pl.LazyFrame:
    """Return each aspect below success, and each unscored reply."""
    about = run.scan("candidates").select("candidate_id", "kind", "completion_tokens")
    frame = run.scan("critiques", iteration=wanted.iteration)
    frame = frame.filter(*rating_conditions(run, wanted))
    below = pl.col("aspects").list.filter(pl.element().struct.field("rating") < 1)
    unread = pl.concat_list(
        pl.struct(
            name=pl.lit(None, pl.String),
            rating=pl.lit(None, pl.Int8),
            comment=pl.lit("", pl.String),
        )
    )
    reason = pl.when(pl.col("status") == SCORED).then(below).otherwise(unread)
    frame = frame.with_columns(reason.alias("reason")).filter(pl.col("reason").list.len() > 0)
    frame = frame.explode("reason").with_columns(
        aspect=pl.col("reason").struct.field("name"),
        rating=pl.col("reason").struct.field("rating"),
        comment=pl.col("reason").struct.field("comment"),
    )
    status = pl.col("rating").replace_strict(
        STATUS, default=pl.col("status"), return_dtype=pl.String
    )
    text = pl.when(pl.col("comment") == "").then("text").otherwise("comment")
    frame = frame.select(
        *("iteration", "prompt_id", "candidate_id", "aspect", "rating"), status=status, text=text
    )
    return frame.join(about, on="candidate_id", how="left", maintain_order="left")


def _cut(run: RunReader, wanted: RowSelection) -> pl.LazyFrame:
    """Return the candidates that are not whole: cut at the maximum length, or failed."""
    frame = run.scan("candidates", iteration=wanted.iteration)
    if wanted.unscored:
        frame = frame.clear()
    return frame.filter(pl.col("finish_reason") != "stop").select(
        *("iteration", "prompt_id", "candidate_id", "kind", "completion_tokens", "text"),
        status="finish_reason",
    )
