"""Pairs from grades, by the rules of UltraFeedback's published data sets.

One pair a prompt: the completion with the best score against one with a lower score. The rules, by
name: `mean-vs-random`, the best mean of the four aspects against a random other (the fine-grained
preference of Section 2.5); `best-vs-worst`, the best mean against the lowest; `overall`, the best
overall score against a random other, as in `ultrafeedback_binarized`. And all of them: `all-pairs`,
every two completions with different means, as UltraRM was trained (about 340,000 pairs of 64,000
prompts). Two texts that it would compare more than once give one pair, or none if the scores
disagree.

Choices for which the sources are silent. A completion that is empty or truncated is on neither
side, nor is one without a score: a mean needs every aspect, each read or not applicable. The random
other is drawn from the completions with a lower score and another text, so that a pair never has
equal scores, nor the same text on both sides (white space aside). Of equally good completions, the
one with the lower id is chosen.

The deciding score is a pair's `chosen_reward` and `rejected_reward`. Its ratings are empty: a
critique's ratings have three levels, grades go from 1 to 5 and stay with the grades. The result
depends neither on the order of the rows nor on the other prompts of the frame.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ...critics.grading.grade_reply import FINE_GRAINED
from ...critics.status import Status
from ...stores.keys import derive_seed
from ...stores.records import SCORED, FilterCount
from .filter_counts import KEPT, filter_counts
from .judged_candidates import VISIBLE, ranked, with_same_text
from .training_rows import Made, Origin, Outcome, outcome_rows, pair_rows

if TYPE_CHECKING:
    from ...configs.recipes import Binarisation

OVERALL: "Binarisation" = "overall"
ALL_PAIRS: "Binarisation" = "all-pairs"
SCORES: "Mapping[Binarisation, str]" = {
    "mean-vs-random": "mean",
    "best-vs-worst": "mean",
    ALL_PAIRS: "mean",
    OVERALL: OVERALL,
}
"""The score that each rule compares."""
BINARISATIONS = tuple(SCORES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binarising(Origin):
    """How to binarise: the rule, and the seeds of the random draw."""

    rule: "Binarisation"
    root_seed: int


def add_scores(candidates: pl.DataFrame, grades: pl.DataFrame) -> pl.DataFrame:
    """Add to each candidate its scores: `mean` of the four aspects, and `overall`.

    A score is null if it could not be read. Reads the columns `judged_candidates.READ`; of several
    grades of an aspect, the last counts.
    """
    whole = (pl.col("finish_reason") == "stop") & pl.col("text").str.contains(VISIBLE)
    last = grades.unique(["candidate_id", "aspect"], keep="last", maintain_order=True)
    scored = (pl.col("status") == SCORED) & pl.col("rating").is_not_null()
    known = last.filter(scored | (pl.col("status") == Status.NOT_APPLICABLE)).sort("rating")
    fine = known.filter(pl.col("aspect").is_in(FINE_GRAINED)).group_by("candidate_id")
    means = fine.agg(mean=pl.col("rating").mean(), read=pl.len())
    overall = known.filter(pl.col("aspect") == OVERALL)
    return (
        candidates.select("prompt_id", "candidate_id", "text", usable=whole)
        .join(means, on="candidate_id", how="left", maintain_order="left")
        .join(
            overall.select("candidate_id", overall="rating"),
            on="candidate_id",
            how="left",
            maintain_order="left",
        )
        .with_columns(mean=pl.when(pl.col("read") == len(FINE_GRAINED)).then("mean"))
        .drop("read")
    )


def binarised_pairs(scored: pl.DataFrame, prompts: pl.DataFrame, how: Binarising) -> Made:
    """Return the rule's pairs from the result of `add_scores`, in the order of the prompts."""
    score = pl.col(SCORES[how.rule])
    compared = scored.with_columns(score=score, rated=pl.col("usable") & score.is_not_null())
    candidates = ranked(compared, prompts, "score")
    rated = with_same_text(candidates.filter("rated")).with_row_index("row")
    chosen, rejected = _every_two(rated) if how.rule == ALL_PAIRS else _draw_sides(rated, how)
    sides = rated.select(
        "prompt_id",
        "candidate_id",
        "text",
        ratings=pl.lit([], pl.List(pl.Int8)),
        reward="score",
    )
    rows = pair_rows(sides[chosen], sides[rejected], prompts, how)
    return Made(rows, _outcomes(candidates, prompts, rows, how))


def binarisation_counts(scored: pl.DataFrame, made: Made, how: Binarising) -> list[FilterCount]:
    """Return filter counts of the candidates with a score, and of the prompts with a pair."""
    fate = (
        pl.when(~pl.col("usable"))
        .then(pl.lit("unusable"))
        .when(pl.col(SCORES[how.rule]).is_null())
        .then(pl.lit("unrated"))
        .otherwise(pl.lit(KEPT))
    )
    candidates = _fates(scored.select(name="candidate_id", fate=fate))
    kept = pl.col("outcome").replace({Outcome.PAIRED.value: KEPT})
    prompts = _fates(made.outcomes.select(name="prompt_id", fate=kept))
    name = f"binarise:{how.rule}"
    return [
        *filter_counts(how.iteration, f"{name}:scores", "candidates", candidates),
        *filter_counts(how.iteration, name, "prompts", prompts),
    ]


def _draw_sides(rated: pl.DataFrame, how: Binarising) -> tuple[list[int], list[int]]:
    """Return the rows of the chosen and of the rejected, prompt by prompt."""
    chosen, rejected = list[int](), list[int]()
    offers = rated.group_by("prompt_id", maintain_order=True).agg("row", "score", "same")
    for prompt_id, rows, scores, same in offers.iter_rows():
        for good, text in zip(rows[: scores.count(scores[0])], same, strict=False):
            worse = [
                row
                for row, score, other in zip(rows, scores, same, strict=True)
                if score < scores[0] and other != text
            ]
            if worse:
                chosen.append(good)
                rejected.append(_against(worse, prompt_id, how))
                break
    return chosen, rejected


def _every_two(rated: pl.DataFrame) -> tuple[list[int], list[int]]:
    """Return the rows of every better completion and of every worse one, prompt by prompt."""
    sides = rated.select("prompt_id", "row", "score", "same")
    texts = ["same", "same_worse"]
    better = (pl.col("score") > pl.col("score_worse")) & (pl.col("same") != pl.col("same_worse"))
    two = sides.join(sides, on="prompt_id", suffix="_worse").filter(better)
    both = two.select(same="same_worse", same_worse="same").unique()
    made = (
        two.join(both, on=texts, how="anti")
        .sort("row", "row_worse")
        .unique(texts, keep="first", maintain_order=True)
    )
    return made["row"].to_list(), made["row_worse"].to_list()


def _against(worse: Sequence[int], prompt_id: str, how: Binarising) -> int:
    """Return the index of the worse completion, best first, to pair with the best."""
    if how.rule == "best-vs-worst":
        return worse[-1]
    seed = derive_seed(how.root_seed, "binarise", how.iteration, how.rule, prompt_id)
    return random.Random(seed).choice(worse)


def _outcomes(
    candidates: pl.DataFrame, prompts: pl.DataFrame, rows: pl.DataFrame, how: Binarising
) -> pl.DataFrame:
    """Return for each prompt whether it gave a pair, or why not."""
    score = pl.col("score").filter("rated")
    found = candidates.group_by("prompt_id").agg(
        pl.col("usable").any(), rated=pl.col("rated").sum(), scores=score.n_unique()
    )
    reasons = (
        (pl.col("usable").is_null(), Outcome.NO_CANDIDATES),
        (~pl.col("usable"), Outcome.NONE_USABLE),
        (pl.col("rated") == 0, Outcome.NONE_RATED),
        (pl.col("rated") == 1, Outcome.NO_NEGATIVE),
        (pl.col("scores") == 1, Outcome.TIED),
    )
    known = prompts.select("prompt_id").join(
        found, on="prompt_id", how="left", maintain_order="left"
    )
    last = Outcome.ALL_IDENTICAL
    return outcome_rows(known, rows, how, success=Outcome.PAIRED, reasons=reasons, otherwise=last)


def _fates(outcomes: pl.DataFrame) -> dict[str, list[str]]:
    found = outcomes.group_by("fate", maintain_order=True).agg("name")
    return dict(found.iter_rows())
