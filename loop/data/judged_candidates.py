"""Candidates with their judgments, as columns: the input of pairing rules.

One row a candidate: its text, whether it is a whole answer, its reward, its ratings, and the
verdict of its critique.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import polars as pl

from ...stores.frames import empty
from ...stores.records import SCORED
from .row_fields import HUMAN

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

READ: Mapping[str, Sequence[str]] = {
    "candidates": ("prompt_id", "candidate_id", "text", "finish_reason"),
    "rewards": ("candidate_id", "score"),
    "critiques": ("candidate_id", "critic", "aspects", "status"),
    "preferences": ("preference_id", "prompt_id", "first_id", "second_id", "preferred"),
    "grades": ("candidate_id", "aspect", "rating", "status"),
    "prompts": ("prompt_id", "messages"),
}
"""The columns that pairing reads, by table."""

VERIFIER = "verifier"
VERIFIED = "Verified"
"""The aspect that the verifier rates beside those of the feedback model."""

VISIBLE = r"[^\s\x1c-\x1f]"
"""Runs of other than white space, as for `str.split`."""
SPACE = r"[\s\x1c-\x1f]{2,}|[^\S ]|[\x1c-\x1f]"
"""White space other than a single blank."""


def verdicts(critiques: Frame) -> Frame:
    """Return whether all rated aspects are 1 (success), or any is 0 or -1 (Section 3.3).

    People's verdicts come first, models' last; the last of a candidate counts.
    """
    ratings = pl.col("aspects").list.eval(pl.element().struct.field("rating"))
    every = ratings.list.eval(pl.element().eq_missing(1)).list.all()
    some = ratings.list.eval(pl.element().is_in([0, -1]).fill_null(value=False)).list.any()
    scored = pl.col("status") == SCORED
    ordered = critiques.sort(~pl.col("critic").str.starts_with(HUMAN), maintain_order=True)
    return ordered.select(
        "candidate_id",
        ratings=ratings.list.drop_nulls(),
        success=scored & every,
        failure=scored & some,
    )


def judge(
    candidates: pl.DataFrame, rewards: pl.DataFrame, said: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Add to each candidate its reward and the columns of `verdicts`."""
    whole = (pl.col("finish_reason") == "stop") & pl.col("text").str.contains(VISIBLE)
    scores = rewards.select("candidate_id", reward="score")
    if said is None:
        # Not at import: a process that has started Polars' threads must not be forked.
        said = verdicts(empty("critiques"))
    return (
        candidates.select("prompt_id", "candidate_id", "text", usable=whole)
        .join(_last(scores), on="candidate_id", how="left", maintain_order="left")
        .join(_last(said), on="candidate_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("ratings").fill_null([]),
            pl.col("success", "failure").fill_null(value=False),
        )
    )


def with_same_text(judged: pl.DataFrame) -> pl.DataFrame:
    """Number the texts of each prompt: `same` is equal where they are, white space normalised."""
    normal = pl.col("text").str.replace_all(SPACE, " ").str.strip_chars(" ")
    numbered = judged.with_row_index("same").with_columns(normal=normal)
    first = pl.col("same").first().over("prompt_id", "normal")
    return numbered.with_columns(first).drop("normal")


def _last(said: pl.DataFrame) -> pl.DataFrame:
    """Of several rows about a candidate, return the last."""
    return said.unique("candidate_id", keep="last", maintain_order=True)
