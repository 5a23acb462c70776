"""Rows to train on, and each prompt's outcome, for any pairing rule.

A rule gives the chosen candidates as columns; here they become pairs, demonstrations or unpaired
answers, with the prompt, an id that hashes their sources, and their rank in the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import polars as pl

from ...stores.keys import row_id
from ...stores.records import FilterCount

PREFERRED = "preferred"
"""The rule of rows made from comparisons: the preferred answer is the better one."""
BALANCED = "/balanced"
"""The suffix of the rule of pairs that were kept when lengths were balanced."""
WEIGHED = "/weighed"
"""The suffix of the rule of rows in a weighted mix of kinds."""


class Outcome(StrEnum):
    """The outcome of a rule on a prompt."""

    PAIRED = "paired"
    """At least one pair."""
    DEMONSTRATED = "demonstrated"
    """At least one demonstration."""
    UNPAIRED = "unpaired"
    """At least one success or failure without a pair."""
    NO_CANDIDATES = "no_candidates"
    """The prompt is without candidates."""
    NONE_USABLE = "none_usable"
    """Every candidate is empty or truncated."""
    NONE_RATED = "none_rated"
    """No usable candidate has the critique, or the reward, that the rule reads."""
    NO_POSITIVE = "no_positive"
    """No rated candidate is positive."""
    NO_NEGATIVE = "no_negative"
    """There are positives, but no negative."""
    ALL_IDENTICAL = "all_identical"
    """There are both, but all with the same text."""
    NOT_COMPARED = "not_compared"
    """The prompt lacks two whole answers to compare."""
    NO_DEMONSTRATION = "no_demonstration"
    """There is no answer written by people."""
    UNREAD = "unread"
    """Answers were compared, but no verdict could be read."""
    TIED = "tied"
    """Answers were compared, but neither was preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The rule and the iteration of rows: both are part of their ids."""

    rule: str
    iteration: int


class Made(NamedTuple):
    """Rows to train on, in the order of the prompts, and each prompt's outcome.

    `filter_counts` count dropped candidates, if a setting drops any.
    """

    rows: pl.DataFrame
    outcomes: pl.DataFrame
    filter_counts: Sequence[FilterCount] = ()


def add_empty_ratings(candidates: pl.DataFrame) -> pl.DataFrame:
    """Return candidates with the columns of rows, ratings and reward left empty."""
    cut = pl.when(pl.col("finish_reason") != "stop").then(pl.lit(value=True))
    return candidates.select(
        cut.cast(pl.Boolean).alias("cut"),
        "prompt_id",
        "candidate_id",
        "text",
        ratings=pl.lit([], pl.List(pl.Int8)),
        reward=pl.lit(None, pl.Float64),
    )


def pair_rows(
    chosen: pl.DataFrame, rejected: pl.DataFrame, prompts: pl.DataFrame, by: Origin
) -> pl.DataFrame:
    """Return the rows of pairs from aligned chosen and rejected candidates.

    Both sides have the columns `prompt_id`, `candidate_id`, `text`, `ratings` and `reward`; without
    `cut`, no answer was cut off.
    """
    chosen, rejected = _with_cut(chosen), _with_cut(rejected)
    pairs = chosen.select(
        "prompt_id",
        chosen_id="candidate_id",
        chosen_ratings="ratings",
        chosen_reward="reward",
        chosen=_assistant(),
        chosen_cut="cut",
    )
    against = rejected.select(
        rejected_id="candidate_id",
        rejected_ratings="ratings",
        rejected_reward="reward",
        rejected=_assistant(),
        rejected_cut="cut",
    )
    rows = pl.concat([pairs, against], how="horizontal")
    ids = _ids("pair", rows.select("prompt_id", "chosen_id", "rejected_id"), by)
    return _finish_rows(rows.with_columns(pair_id=ids), prompts, by)


def balanced_rows(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return whole pairs, marked as kept when lengths were balanced."""
    kept = pairs.with_columns(rule=pl.col("rule") + BALANCED)
    parts = kept.select("rule", "iteration", "prompt_id", "chosen_id", "rejected_id")
    ids = [row_id("pair", row) for row in parts.iter_rows()]
    return kept.with_columns(pair_id=pl.Series(ids, dtype=pl.String))


def made_by(rule: str) -> str:
    """Return the rule that made a row, without the suffixes of balancing and weighing."""
    return rule.removesuffix(WEIGHED).removesuffix(BALANCED)


def in_use(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows that are trained on: if rows were balanced or weighed, only the results.

    Reads the columns `iteration` and `rule`.
    """
    weighed = rows.filter(pl.col("rule").str.ends_with(WEIGHED))
    iterations = weighed.select("iteration").unique()
    others = rows.join(iterations, on="iteration", how="anti", maintain_order="left")
    return pl.concat([_balanced_in_use(others), weighed])


def _balanced_in_use(pairs: pl.LazyFrame) -> pl.LazyFrame:
    """Return the kept pairs of each rule and iteration that was balanced, and all other pairs."""
    kept = pairs.filter(pl.col("rule").str.ends_with(BALANCED))
    replaced = kept.select("iteration", pl.col("rule").str.strip_suffix(BALANCED)).unique()
    return pairs.join(replaced, on=["iteration", "rule"], how="anti", maintain_order="left")


def demonstration_rows(chosen: pl.DataFrame, prompts: pl.DataFrame, by: Origin) -> pl.DataFrame:
    """Return the rows of demonstrations; the columns are as in `pair_rows`."""
    rows = chosen.select("prompt_id", "candidate_id", "ratings", "reward", completion=_assistant())
    ids = _ids("demo", rows.select("prompt_id", "candidate_id"), by)
    return _finish_rows(rows.with_columns(demonstration_id=ids), prompts, by)


def unpaired_rows(answers: pl.DataFrame, prompts: pl.DataFrame, by: Origin) -> pl.DataFrame:
    """Return the rows of unpaired answers: the columns of `pair_rows`, and `label`."""
    rows = answers.select(
        "prompt_id", "candidate_id", "ratings", "reward", "label", completion=_assistant()
    )
    ids = _ids("unp", rows.select("prompt_id", "candidate_id"), by)
    return _finish_rows(rows.with_columns(unpaired_id=ids), prompts, by)


def outcome_rows(
    prompts: pl.DataFrame,
    rows: pl.DataFrame,
    by: Origin,
    *,
    success: Outcome,
    reasons: Sequence[tuple[pl.Expr, Outcome]] = (),
    otherwise: Outcome,
) -> pl.DataFrame:
    """Return each prompt's number of rows, and its outcome.

    The outcome is `success` if the number is above 0, else the first reason whose condition is true
    for the prompt's columns.
    """
    made = rows.group_by("prompt_id").agg(made=pl.len())
    outcomes = [(pl.col("made") > 0, success), *reasons, (pl.lit(value=True), otherwise)]
    outcome = pl.coalesce(pl.when(holds).then(pl.lit(name)) for holds, name in outcomes)
    return (
        prompts.join(made, on="prompt_id", how="left", maintain_order="left")
        .with_columns(pl.col("made").fill_null(0))
        .select("prompt_id", outcome=outcome, made="made")
        .with_columns(iteration=pl.lit(by.iteration), rule=pl.lit(by.rule))
    )


def _with_cut(side: pl.DataFrame) -> pl.DataFrame:
    missing = "cut" not in side.columns
    return side.with_columns(cut=pl.lit(None, pl.Boolean)) if missing else side


def _assistant() -> pl.Expr:
    """Return a candidate's text as the one message of an answer."""
    return pl.concat_list(pl.struct(role=pl.lit("assistant"), content=pl.col("text")))


def _ids(prefix: str, of: pl.DataFrame, by: Origin) -> pl.Series:
    """Return the id of each row: a hash of its parts and its rule."""
    made = [row_id(prefix, [by.rule, by.iteration, *parts]) for parts in of.iter_rows()]
    return pl.Series(made, dtype=pl.String)


def _finish_rows(rows: pl.DataFrame, prompts: pl.DataFrame, by: Origin) -> pl.DataFrame:
    """Add to each row its rank in its prompt, the rule, and the prompt."""
    by_prompt = prompts.select("prompt_id", prompt="messages")
    return rows.join(by_prompt, on="prompt_id", how="left", maintain_order="left").with_columns(
        iteration=pl.lit(by.iteration),
        rule=pl.lit(by.rule),
        rank=pl.int_range(pl.len()).over("prompt_id"),
    )
