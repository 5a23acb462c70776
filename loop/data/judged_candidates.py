"""Candidates with their judgments, as columns: the input of pairing rules.

One row a candidate: its text, whether it is a whole answer, its reward, its ratings, and the
verdict of its critique.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import polars as pl

from ...stores.frames import empty_frame
from ...stores.records import SCORED

if TYPE_CHECKING:
    from ...configs.judging import People

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

HUMAN, LABEL = "human:", "label:"
"""Prefixes of the name of a person who judged, and of a data set's field that labels answers."""
TRUSTED = (HUMAN, LABEL)
"""The prefixes of annotators whose judgements are the truth for models."""

READ: Mapping[str, Sequence[str]] = {
    "candidates": ("prompt_id", "candidate_id", "text", "finish_reason"),
    "rewards": ("candidate_id", "score"),
    "critiques": ("candidate_id", "critic", "aspects", "status"),
    "preferences": (
        *("preference_id", "prompt_id", "first_id", "second_id", "preferred"),
        *("annotator", "first_score", "second_score"),
    ),
    "grades": ("candidate_id", "aspect", "rating", "status"),
    "prompts": ("prompt_id", "messages"),
}
"""The columns that pairing reads, by table."""

VERIFIER = "verifier"
VERIFIED = "Verified"
"""The aspect that the verifier rates, in addition to the feedback model's."""

VISIBLE = r"[^\s\x1c-\x1f]"
"""Runs of other than white space, as for `str.split`."""
SPACE = r"[\s\x1c-\x1f]{2,}|[^\S ]|[\x1c-\x1f]"
"""White space other than a single blank."""


Agreement = Literal["all", "mean"]
"""How several critiques of a candidate are combined: the worst of each aspect, or the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Which ratings decide if a candidate was rated more than once.

    `agreement` combines the readable critiques by models; with None the last one counts.
    """

    people: "People" = "decide"
    agreement: Agreement | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return the deciding settings of a run from its stored configuration."""
        critic = config.get("critic", {})
        agreement = "all" if critic.get("samples", 1) > 1 else None
        return cls(people=config.get("pairs", {}).get("people", "decide"), agreement=agreement)


def verdicts(critiques: Frame, deciding: Deciding | None = None) -> Frame:
    """Return whether all rated aspects are 1 (success), or any is 0 or -1 (Section 3.3).

    Verdicts by models come first, verdicts by people and labels last, unless they are ignored; the
    last one of a candidate counts. If several people rated it, the mean of their last ratings
    counts. `mean_rating` is the mean over the aspects; of several critiques that count, the mean of
    their means.
    """
    deciding = deciding or Deciding()
    scored = pl.col("status") == SCORED
    by_person = is_trusted("critic")
    ratings = pl.col("aspects").list.eval(pl.element().struct.field("rating"))
    by_model = critiques.filter(~by_person)
    if deciding.agreement is None:
        verdict_rows = by_model.select(
            "candidate_id",
            ratings=ratings,
            mean_rating=pl.when(scored).then(ratings.list.mean()),
            scored=scored,
        )
    else:
        verdict_rows = _levels(by_model.filter(scored), deciding.agreement)
    if deciding.people == "decide":
        rated = critiques.filter(by_person & scored)
        last = rated.unique(["candidate_id", "critic"], keep="last", maintain_order=True)
        verdict_rows = pl.concat([verdict_rows, _levels(last, "mean")])
    every = pl.col("ratings").list.eval(pl.element().eq_missing(1)).list.all()
    some = pl.col("ratings").list.eval(pl.element().is_in([0, -1]).fill_null(value=False))
    return verdict_rows.select(
        "candidate_id",
        pl.col("ratings").list.drop_nulls(),
        "mean_rating",
        success=pl.col("scored") & every,
        failure=pl.col("scored") & some.list.any(),
    )


def _levels(critiques: Frame, agreement: Agreement) -> Frame:
    """Return the ratings of each candidate: of each aspect the worst, or the mean as a level.

    A mean half-way between two levels becomes the lower one: half of the judges pass nothing. No
    level rounds the candidate's mean rating: it is the mean of its critiques' means.
    """
    each = pl.col("aspects").list.eval(pl.element().struct.field("rating")).list.mean()
    by_candidate = critiques.group_by("candidate_id", maintain_order=True)
    several = by_candidate.agg(pl.col("aspects").explode(), mean_rating=each.mean())
    rated = several.explode("aspects").unnest("aspects")
    level = pl.col("rating").min()
    if agreement == "mean":
        level = (pl.col("rating").mean() - 0.5).ceil().cast(pl.Int8)
    candidate = ("candidate_id", "mean_rating")
    aspects = rated.group_by(*candidate, "name", maintain_order=True).agg(rating=level)
    levels = aspects.group_by(*candidate, maintain_order=True).agg(ratings="rating")
    return levels.select("candidate_id", "ratings", "mean_rating", scored=pl.lit(value=True))


def is_trusted(column: str) -> pl.Expr:
    """Whether a column names a person, or a label of a data set."""
    return pl.any_horizontal(pl.col(column).str.starts_with(prefix) for prefix in TRUSTED)


def critique_place(critic: str, sample: int | None) -> tuple[bool, bool]:
    """Return the sort key of a critique among its candidate's, of which the last is shown.

    The critic's is shown, and of several samples the first; a person's only if it is the only one.
    """
    return not critic.startswith(TRUSTED), sample is None


def last_votes(preferences: pl.LazyFrame) -> pl.LazyFrame:
    """Return the preferences; of several by one person on the same two answers, only the last."""
    pair = pl.concat_list("first_id", "second_id").list.sort()
    by_person = is_trusted("annotator") & ~pl.col("flipped")
    later = pl.col("number") < pl.col("number").max().over("annotator", pair)
    kept = preferences.with_row_index("number").filter(~(by_person & later))
    return kept.drop("number")


def judge(
    candidates: pl.DataFrame,
    rewards: pl.DataFrame,
    verdict_rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Add to each candidate its reward and the columns of `verdicts`."""
    shown = pl.col("text").str.contains(VISIBLE)
    whole = (pl.col("finish_reason") == "stop") & shown
    cut = pl.when((pl.col("finish_reason") == "length") & shown).then(pl.lit(value=True))
    scores = rewards.select("candidate_id", reward="score")
    if verdict_rows is None:
        # Not at import: a process that has started Polars' threads must not be forked.
        verdict_rows = verdicts(empty_frame("critiques"))
    return (
        candidates.select("prompt_id", "candidate_id", "text", usable=whole, cut=cut)
        .join(last_of_candidate(scores), on="candidate_id", how="left", maintain_order="left")
        .join(last_of_candidate(verdict_rows), on="candidate_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("ratings").fill_null([]),
            pl.col("success", "failure").fill_null(value=False),
        )
    )


def ranked(candidates: pl.DataFrame, prompts: pl.DataFrame, by: str) -> pl.DataFrame:
    """Sort candidates by prompt, then by the column `by`, best first.

    Candidates without a value are last, ties are in the order of ids.
    """
    turns = prompts.select("prompt_id").with_row_index("turn")
    descending = [False, True, False]
    return candidates.join(turns, on="prompt_id").sort(
        "turn", by, "candidate_id", descending=descending, nulls_last=True
    )


def with_same_text(judged: pl.DataFrame) -> pl.DataFrame:
    """Number the texts of each prompt: `same` is equal for texts equal up to white space."""
    normal = pl.col("text").str.replace_all(SPACE, " ").str.strip_chars(" ")
    numbered = judged.with_row_index("same").with_columns(normal=normal)
    first = pl.col("same").first().over("prompt_id", "normal")
    return numbered.with_columns(first).drop("normal")


def last_of_candidate(rows: Frame) -> Frame:
    """Return one row of each candidate, the last: of several rewards it is the one that counts."""
    return rows.unique("candidate_id", keep="last", maintain_order=True)
