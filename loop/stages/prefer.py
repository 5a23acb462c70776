"""From comparisons to training rows.

DPO and reward models learn pairs (x, y+, y-), under the rule `preferred`: the preferred answer is
chosen, the other rejected. FeedME learns the preferred answer. Reward conditioning learns both,
each after a control text that marks it as winner or loser (AlpacaFarm, Section 2.2).

Ties and comparisons without a verdict are skipped. If the same two answers were compared twice, the
last comparison counts. With `annotation.drop_cycles`, comparisons that contradict others are
skipped, too.

If several annotators voted on the same two answers, each one's last vote counts, and people's votes
before models'. Equal numbers of votes are a tie; if no vote could be read, nothing is decided.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from ...configs.recipes import RewardConditioning
from ...stores.frames import as_arrow, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Demonstration, Pair, PairingOutcome, Preference, Prompt
from ...stores.schemas import RowsByType
from ..data.cycles import DECIDED, consistency_params, drop_cycles
from ..data.judged_candidates import TRUSTED
from ..data.training_rows import (
    PREFERRED,
    Made,
    Origin,
    Outcome,
    add_empty_ratings,
    demonstration_rows,
    outcome_rows,
    pair_rows,
)
from ..run.handles import D, Rows
from ..run.iteration import Iteration, add_control, control_text
from ..run.run import Verb
from .balance_length import balance_length

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


PREFER, CONDITION = Verb("prefer"), Verb("condition")
DEMONSTRATE_PREFERRED = Verb("demonstrate_preferred")
CONDITIONED = "conditioned"
WON, LOST = "conditioned_positive", "conditioned_negative"
"""The rules of the rows behind either control text."""

Derivation = Callable[[pl.DataFrame, pl.DataFrame, Sequence[Prompt], int], Made]
"""Makes rows of candidates and their comparisons, for prompts in an iteration."""


def prefer(it: Iteration, candidates: Rows[Candidate], preferences: Rows[Preference]) -> Rows[Pair]:
    """Commit (x, y+, y-) of every comparison that counts."""
    params = {"rule": PREFERRED}
    pairs = _commit_made(it, PREFER, Pair, params, preferred_pairs, candidates, preferences)
    return balance_length(it, pairs, candidates)


def demonstrate_preferred(
    it: Iteration, candidates: Rows[Candidate], preferences: Rows[Preference]
) -> Rows[Demonstration]:
    """Commit (x, y+) of every comparison that counts."""
    params, how = {"rule": PREFERRED}, preferred_demonstrations
    return _commit_made(
        it, DEMONSTRATE_PREFERRED, Demonstration, params, how, candidates, preferences
    )


def condition(
    it: Iteration,
    candidates: Rows[Candidate],
    preferences: Rows[Preference],
    *,
    positive: str,
    negative: str,
) -> Rows[Demonstration]:
    """Commit both answers of every comparison, each behind the control text of its side."""
    it.require(RewardConditioning, "condition")
    params = {"rule": CONDITIONED, "positive": positive, "negative": negative}
    how = partial(conditioned_demonstrations, positive=positive, negative=negative)
    return _commit_made(it, CONDITION, Demonstration, params, how, candidates, preferences)


def _commit_made(
    it: Iteration,
    verb: Verb,
    row_type: type[D],
    params: Mapping[str, Json],
    how: Derivation,
    candidates: Rows[Candidate],
    preferences: Rows[Preference],
) -> Rows[D]:
    """Commit the rows made from the comparisons that count, and each prompt's outcome."""
    config = it.run.config.annotation

    def make(unit: Unit) -> RowsByType:
        drafts, compared = it.frame(candidates, unit.chunk), it.frame(preferences, unit.chunk)
        known = it.run.prompts
        if it.run.labels is not None:
            # People may have compared answers to prompts that are not the run's, in several votes.
            store = it.run.store
            keys = [stage.key(store.journal, unit.chunk) for stage in candidates.stages]
            theirs = {p.prompt_id: p for key in keys for p in store.rows(Prompt, key)}
            known, compared = {**theirs, **known}, majority(compared)
        prompts_of = [known[name] for name in dict.fromkeys(drafts["prompt_id"])]
        kept = drop_cycles(compared, config, it.number)
        made = how(drafts, kept.comparisons, prompts_of, it.number)
        return {
            row_type: as_arrow(made.rows),
            PairingOutcome: as_arrow(made.outcomes),
            **kept.tables,
        }

    work = it.work(verb, {**params, **consistency_params(config)}, candidates, preferences)
    return it.rows(row_type, verb.name, work, make)


def preferred_pairs(
    candidates: pl.DataFrame, preferences: pl.DataFrame, prompts: Sequence[Prompt], iteration: int
) -> Made:
    """Return the pairs in the order of the prompts, and one yield a prompt.

    Reads the columns `judged_candidates.READ`, in any order of rows.
    """
    prompt_frame, by = rows_frame(Prompt, prompts), Origin(rule=PREFERRED, iteration=iteration)
    chosen, rejected = _sides(candidates, preferences, prompt_frame)
    rows = pair_rows(chosen, rejected, prompt_frame, by)
    return Made(rows, _outcomes(preferences, prompt_frame, rows, by, Outcome.PAIRED))


def preferred_demonstrations(
    candidates: pl.DataFrame, preferences: pl.DataFrame, prompts: Sequence[Prompt], iteration: int
) -> Made:
    """Return each preferred answer once, in the order of the prompts, and one yield a prompt."""
    prompt_frame, by = rows_frame(Prompt, prompts), Origin(rule=PREFERRED, iteration=iteration)
    chosen = _once(_sides(candidates, preferences, prompt_frame)[0])
    rows = demonstration_rows(chosen, prompt_frame, by)
    return Made(rows, _outcomes(preferences, prompt_frame, rows, by, Outcome.DEMONSTRATED))


def conditioned_demonstrations(
    candidates: pl.DataFrame,
    preferences: pl.DataFrame,
    prompts: Sequence[Prompt],
    iteration: int,
    *,
    positive: str,
    negative: str,
) -> Made:
    """Return first all preferred, then all other answers, and one yield a prompt."""
    prompt_frame = rows_frame(Prompt, prompts)
    chosen, rejected = _sides(candidates, preferences, prompt_frame)

    def behind(text: str, side: pl.DataFrame, rule: str) -> pl.DataFrame:
        control = control_text(text)
        controlled = [replace(p, messages=add_control(p.messages, control)) for p in prompts]
        by = Origin(rule=rule, iteration=iteration)
        return demonstration_rows(_once(side), rows_frame(Prompt, controlled), by)

    rows = pl.concat([behind(positive, chosen, WON), behind(negative, rejected, LOST)])
    by = Origin(rule=CONDITIONED, iteration=iteration)
    return Made(rows, _outcomes(preferences, prompt_frame, rows, by, Outcome.DEMONSTRATED))


def _once(side: pl.DataFrame) -> pl.DataFrame:
    return side.unique("candidate_id", keep="first", maintain_order=True)


def _sides(
    candidates: pl.DataFrame, preferences: pl.DataFrame, prompts: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the preferred and the other candidate of each decided comparison, prompt by prompt.

    Their `reward` is the score that the comparison's source gives, or null.
    """
    turns = prompts.select("prompt_id").with_row_index("turn")
    first = pl.col("preferred") == "first"
    decided = (
        preferences.unique(["first_id", "second_id"], keep="last", maintain_order=True)
        .filter(pl.col("preferred").is_in(DECIDED))
        .join(turns, on="prompt_id")
        .sort("turn", "first_id", "second_id")
    )
    offered = add_empty_ratings(candidates)
    columns = offered.columns

    def side(is_first: pl.Expr) -> pl.DataFrame:
        scored = decided.select(
            candidate_id=pl.when(is_first).then("first_id").otherwise("second_id"),
            reward=pl.when(is_first).then("first_score").otherwise("second_score").cast(pl.Float64),
        )
        found = scored.join(offered.drop("reward"), on="candidate_id", maintain_order="left")
        return found.select(columns)

    return side(first), side(~first)


def _outcomes(
    preferences: pl.DataFrame,
    prompts: pl.DataFrame,
    rows: pl.DataFrame,
    by: Origin,
    success: Outcome,
) -> pl.DataFrame:
    """Return how many rows each prompt gave, or the reason for none."""
    ties = preferences.group_by("prompt_id").agg(tied=(pl.col("preferred") == "tie").any())
    known = prompts.select("prompt_id").join(
        ties, on="prompt_id", how="left", maintain_order="left"
    )
    tied = pl.col("tied")
    reasons = ((tied.is_null(), Outcome.NOT_COMPARED), (tied, Outcome.TIED))
    last = Outcome.UNREAD
    return outcome_rows(known, rows, by, success=success, reasons=reasons, otherwise=last)
