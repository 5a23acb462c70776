"""Rows to train on from judged candidates: pure functions.

Pairs are for DPO, demonstrations for rejection sampling, unpaired answers for KTO.

Rules. By critique (RLRF, Section 3.3), `success_vs_failure` for pairs and `success` for
demonstrations: a positive has 1 on all rated aspects, a negative has any 0 or -1; the top k
positives by reward are each paired with a random negative; `success_or_failure` for unpaired
answers takes all of both sides. By reward alone (Section 4.1, the baseline), `top_reward`: the top
k against random others, ignoring critiques; `reward_extremes` (ChatGLM-RLHF, Section 3.4: pairs of
varied rewards): the top k against the lowest, the best against the worst first, each of them below
all of the top k. By the mean rating (self-rewarding, Yuan et al., 2024, Section 2.3),
`rating_extremes`: as `reward_extremes`, with the critiques' mean ratings.

Choices for which the paper is silent. A candidate that is empty, truncated or not rated (for the
rule) is on neither side, unless `cut_answers` are rejected. Each negative is used once, so there
are at most as many pairs as negatives. A text is never on both sides of a pair, no two pairs of a
prompt have the same two texts, and no two demonstrations the same text; texts that differ only in
white space count as the same. The positives of pairs may have the same text, each against another
negative, unless they are to be `distinct`: then the top k have k different texts, each represented
by its best candidate. A text also occurs at most once among a prompt's unpaired answers; a text
that was judged both ways is left out.

All prompts of a frame are processed at once, by columns; only negatives are drawn prompt by prompt,
as each prompt has its own seed. The result depends neither on the order of the candidates nor on
the other prompts in the frame.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

import polars as pl

from ...configs.judging import CutAnswers
from ...stores.keys import derive_seed
from ...stores.records import Demonstration, FilterCount, Pair, UnpairedAnswer
from ...stores.schemas import TABLES
from .filter_counts import KEPT, filter_counts
from .judged_candidates import ranked, with_same_text
from .training_rows import (
    Made,
    Origin,
    Outcome,
    demonstration_rows,
    outcome_rows,
    pair_rows,
    unpaired_rows,
)

Unfit = Literal["empty", "identical"]


def unfit(answers: Iterable[str]) -> Unfit | None:
    """Return why the answers of a pair cannot be trained on, or None.

    Texts that differ only in white space count as one text.
    """
    texts = {" ".join(text.split()) for text in answers}
    if "" in texts:
        return "empty"
    # Of two equal answers there may be one candidate, or none.
    return "identical" if len(texts) <= 1 else None


Rule = Literal[
    "success_vs_failure",
    "success",
    "success_or_failure",
    "top_reward",
    "reward_extremes",
    "rating_extremes",
]
RULES: tuple[Rule, ...] = get_args(Rule)
EXTREMES: Final = "reward_extremes"
RATED_EXTREMES: Final = "rating_extremes"
BY_REWARD: frozenset[str] = frozenset({"top_reward", EXTREMES})
"""The rules that read no critique."""
LOWEST_FIRST: frozenset[str] = frozenset({EXTREMES, RATED_EXTREMES})
"""The rules that take the lowest negatives first; others draw negatives at random."""

BY_CRITIQUE: Final = "success_vs_failure"
EITHER: Final = "success_or_failure"

TrainedRow = type[Pair | Demonstration | UnpairedAnswer]
TRAINABLE: Mapping[str, TrainedRow] = {
    TABLES[row_type]: row_type for row_type in (Pair, Demonstration, UnpairedAnswer)
}
"""The tables of rows to train on."""

DISTINCT = "distinct_positives"
"""The filter that drops candidates that repeat the text of a better positive."""
UNPAIRING = "unpair"
"""The stage that drops repeated texts and texts that were judged both ways."""
REPEATED, CONTRADICTED = "repeated", "contradicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing(Origin):
    """How to pair: the rule, how many positives a prompt, and the seeds of the random draw.

    `distinct` positives of a prompt have different texts, as demonstrations always have. If
    `cut_answers` are rejected, a candidate that was cut off and fails is a negative, too.
    """

    rule: Rule
    top_k: int
    root_seed: int
    distinct: bool = False
    cut_answers: CutAnswers = "left_out"


_Offers = dict[str, tuple[list[int], list[int]]]


class _RuleSides(NamedTuple):
    """A rule's verdict on a candidate: whether it is rated, is a y-, or is able to be y+.

    The top k of the able candidates are `positive`. `taken` are these and, if positives are to be
    distinct, candidates that repeat the text of one. A rule may read both to define negatives.
    """

    rated: pl.Expr
    able: pl.Expr
    negative: pl.Expr


def pair(judged: pl.DataFrame, prompts: pl.DataFrame, how: Pairing) -> Made:
    """Pair the candidates of each prompt: y+ by the rule, best first, each with a y-."""
    split = _split(ranked(judged, prompts, _worth(how.rule)), how)
    either = split.filter(pl.col("positive") | pl.col("negative"))
    sides = either.drop("same", strict=False).with_row_index("row")
    chosen, rejected = _draw_sides(sides, how)
    rows = pair_rows(sides[chosen], sides[rejected], prompts, how)
    repetitions = _repetitions(split, how) if how.distinct else ()
    return Made(rows, _outcomes(split, prompts, rows, Outcome.PAIRED, how), repetitions)


def demonstrate(judged: pl.DataFrame, prompts: pl.DataFrame, how: Pairing) -> Made:
    """Return the top k positives of distinct texts as demonstrations.

    Of a text with two different judgments, the one with the higher reward counts.
    """
    numbered = with_same_text(ranked(judged, prompts, _worth(how.rule)))
    distinct = numbered.unique(["turn", "same"], keep="first", maintain_order=True)
    split = _split(distinct, how)
    rows = demonstration_rows(split.filter("positive"), prompts, how)
    return Made(rows, _outcomes(split, prompts, rows, Outcome.DEMONSTRATED, how))


def unpair(judged: pl.DataFrame, prompts: pl.DataFrame, how: Pairing) -> Made:
    """Return every success and failure separately, each text of a prompt once, best first.

    A text that was judged both ways is contradictory, and is left out.
    """
    split = _split(with_same_text(ranked(judged, prompts, _worth(how.rule))), how)
    rated = split.filter("rated").with_columns(
        label=pl.col("able"), contradicts=pl.col("able").n_unique().over("turn", "same") > 1
    )
    kept = rated.filter(~pl.col("contradicts")).unique(
        ["turn", "same"], keep="first", maintain_order=True
    )
    rows = unpaired_rows(kept, prompts, how)
    fates = {
        KEPT: kept,
        CONTRADICTED: rated.filter("contradicts"),
        REPEATED: rated.filter(~pl.col("contradicts")).join(kept, on="candidate_id", how="anti"),
    }
    ids = {fate: found["candidate_id"].to_list() for fate, found in fates.items() if len(found)}
    counts = filter_counts(how.iteration, UNPAIRING, "candidates", ids)
    return Made(rows, _outcomes(split, prompts, rows, Outcome.UNPAIRED, how), counts)


DERIVE: Mapping[TrainedRow, Callable[[pl.DataFrame, pl.DataFrame, Pairing], Made]] = {
    Pair: pair,
    Demonstration: demonstrate,
    UnpairedAnswer: unpair,
}


def _worth(rule: Rule) -> str:
    """Return the column by which a rule ranks candidates."""
    return "mean_rating" if rule == RATED_EXTREMES else "reward"


def _split(candidates: pl.DataFrame, how: Pairing) -> pl.DataFrame:
    """Split ranked candidates: the top k positives of each prompt, and all negatives."""
    rated, able, negative = SIDES[how.rule]()
    if how.cut_answers == "rejected":
        cut = pl.col("failure") & pl.col("cut").fill_null(value=False)
        rated, negative = rated | cut, negative | cut
    # One after the other: a window inside of another one sees but the rows of the outer.
    split = candidates.with_columns(rated=rated, able=able)
    counted, taken = pl.col("able"), pl.col("positive")
    if how.distinct:
        split = with_same_text(split).with_columns(first=pl.col("able").cum_sum().over("same") <= 1)
        counted, taken = pl.col("able") & pl.col("first"), taken.any().over("same")
    place = counted.cum_sum().over("turn")
    split = split.with_columns(positive=counted & (place <= how.top_k)).with_columns(taken=taken)
    return split.with_columns(negative=negative)


def _by_critique() -> _RuleSides:
    """Split by critique: all aspects 1, or any 0 or -1; the top k positives by reward."""
    success = pl.col("usable") & pl.col("success")
    failure = pl.col("usable") & pl.col("failure")
    return _RuleSides(success | failure, success, failure)


def _by_reward(worth: str = "reward") -> _RuleSides:
    """Split by reward: the top k, and the rest; no text is on both sides if they are distinct."""
    rated = pl.col("usable") & pl.col(worth).is_not_null()
    return _RuleSides(rated, rated, pl.col("rated") & ~pl.col("taken"))


def _by_extremes(worth: str = "reward") -> _RuleSides:
    """Split by reward, or another column: the top k, and the candidates below all of these."""
    rated, able, rest = _by_reward(worth)
    lowest = pl.col(worth).filter(pl.col("positive")).min().over("turn")
    return _RuleSides(rated, able, rest & (pl.col(worth) < lowest))


def _repetitions(split: pl.DataFrame, how: Pairing) -> list[FilterCount]:
    """Return filter counts of possible positives: kept, or a repetition of a better one."""
    able = split.filter("able")
    ids = {
        fate: able.filter(pl.col("first") == first)["candidate_id"].to_list()
        for fate, first in ((KEPT, True), (REPEATED, False))
    }
    return filter_counts(how.iteration, DISTINCT, "candidates", ids)


SIDES: Mapping[Rule, Callable[[], _RuleSides]] = {
    "success_vs_failure": _by_critique,
    "success": _by_critique,
    EITHER: _by_critique,
    "top_reward": _by_reward,
    EXTREMES: _by_extremes,
    RATED_EXTREMES: partial(_by_extremes, _worth(RATED_EXTREMES)),
}


def _draw_sides(sides: pl.DataFrame, how: Pairing) -> tuple[list[int], list[int]]:
    """Return the rows of the chosen and of the rejected: prompt by prompt, best first."""
    offers = _offers(sides, how)
    same = _same_texts(sides, offers)
    chosen, rejected = list[int](), list[int]()
    for prompt_id, (positives, negatives) in offers.items():
        texts = same.get(prompt_id)
        simply = list(zip(positives, negatives, strict=False))
        for good, bad in simply if texts is None else _match_sides(positives, negatives, texts):
            chosen.append(good)
            rejected.append(bad)
    return chosen, rejected


def _offers(sides: pl.DataFrame, how: Pairing) -> _Offers:
    """Return the rows of each prompt's positives, best first, and of its negatives in turn."""
    rows = sides.group_by("prompt_id", maintain_order=True).agg(
        pl.col("row").filter(pl.col(side)).alias(side) for side in ("positive", "negative")
    )
    offers: _Offers = {}
    for prompt_id, positives, negatives in rows.iter_rows():
        offers[prompt_id] = (positives, _in_turn(negatives, prompt_id, how))
    return offers


def _in_turn(negatives: list[int], prompt_id: str, how: Pairing) -> list[int]:
    """Return a prompt's negatives, which are ranked, in the order in which they are taken."""
    if how.rule in LOWEST_FIRST:
        return negatives[::-1]
    seed = derive_seed(how.root_seed, "pair", how.iteration, how.rule, prompt_id)
    return random.Random(seed).sample(negatives, len(negatives))


def _same_texts(sides: pl.DataFrame, offers: _Offers) -> Mapping[str, Mapping[int, int]]:
    """Return which texts are equal, for the prompts in which that matters.

    It matters if the texts matched first are equal: only then are all compared.
    """
    first = [row for good, bad in offers.values() for row in (*good, *bad[: len(good)])]
    compared = with_same_text(sides[first]).group_by("prompt_id")
    equal = compared.agg(pl.col("same").n_unique() < pl.len()).filter("same").select("prompt_id")
    texts: dict[str, dict[int, int]] = {prompt_id: {} for prompt_id in equal["prompt_id"]}
    numbered = with_same_text(sides.join(equal, on="prompt_id", how="semi"))
    for prompt_id, row, same in numbered.select("prompt_id", "row", "same").iter_rows():
        texts[prompt_id][row] = same
    return texts


def _match_sides(
    positives: Sequence[int], negatives: list[int], same: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Match each positive, best first, with the next negative that gives a new pair of texts."""
    made = set[tuple[int, int]]()
    matched = list[tuple[int, int]]()
    for chosen in positives:
        for rejected in negatives:
            texts = (same[chosen], same[rejected])
            if texts[0] != texts[1] and texts not in made:
                made.add(texts)
                matched.append((chosen, rejected))
                negatives.remove(rejected)
                break
    return matched


def _outcomes(
    split: pl.DataFrame, prompts: pl.DataFrame, rows: pl.DataFrame, success: Outcome, how: Pairing
) -> pl.DataFrame:
    """Return for each prompt how many pairs were made, or why none."""
    found = split.group_by("prompt_id").agg(pl.col("usable", "rated", "positive", "negative").any())
    reasons = (
        (pl.col("usable").is_null(), Outcome.NO_CANDIDATES),
        (~pl.col("usable"), Outcome.NONE_USABLE),
        (~pl.col("rated"), Outcome.NONE_RATED),
        (~pl.col("positive"), Outcome.NO_POSITIVE),
        (~pl.col("negative"), Outcome.NO_NEGATIVE),
    )
    known = prompts.select("prompt_id").join(
        found, on="prompt_id", how="left", maintain_order="left"
    )
    last = Outcome.ALL_IDENTICAL
    return outcome_rows(known, rows, how, success=success, reasons=reasons, otherwise=last)
