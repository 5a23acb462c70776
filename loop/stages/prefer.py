"""From comparisons to pairs (x, y+, y-): the preferred answer is chosen, the other rejected.

The rule `preferred`. A tie and a comparison without a verdict give no pair: nobody said which
answer is the better one. What was compared twice may give the same two answers twice; the
comparison that comes last counts. With `annotation.drop_cycles` those that contradict others give
none, either.
"""

from typing import NamedTuple

import polars as pl

from ...stores.frames import as_arrow, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Pair, Preference, Prompt, Yield
from ...stores.schemas import RowsByType
from ..data.cycles import DECIDED, consistency_params, sifted
from ..data.training_rows import PREFERRED, Made, Origin, Outcome, pair_rows, unrated, yield_rows
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .balance_length import balanced

PREFER = Verb("prefer")


class Sides(NamedTuple):
    """The preferred and the other candidate of each decided comparison, row by row.

    Columns: `prompt_id`, `candidate_id`, `text`, `ratings` (none), `reward` (null).
    """

    chosen: pl.DataFrame
    rejected: pl.DataFrame


def prefer(it: Iteration, candidates: Rows[Candidate], preferences: Rows[Preference]) -> Rows[Pair]:
    """Commit the pairs of the comparisons that count, and what became of each prompt."""
    config = it.run.config.annotation
    params: Json = {"rule": PREFERRED, **consistency_params(config)}

    def make(unit: Unit) -> RowsByType:
        drafts = it.frame(candidates, unit.chunk)
        asked = [it.run.prompts[name] for name in dict.fromkeys(drafts["prompt_id"])]
        said = sifted(it.frame(preferences, unit.chunk), config, it.number)
        by = Origin(rule=PREFERRED, iteration=it.number)
        made = preferred_pairs(drafts, said.comparisons, rows_frame(Prompt, asked), by)
        return {Pair: as_arrow(made.rows), Yield: as_arrow(made.yields), **said.tables}

    work = it.work(PREFER, params, candidates, preferences)
    return balanced(it, it.rows(Pair, "prefer", work, make), candidates)


def preferred_pairs(
    candidates: pl.DataFrame, preferences: pl.DataFrame, prompts: pl.DataFrame, by: Origin
) -> Made:
    """Return the pairs in the order of the prompts, and one yield a prompt.

    The columns that are read are those of `judged.READ`; the order of the rows changes nothing.
    """
    chosen, rejected = sides(candidates, preferences, prompts)
    rows = pair_rows(chosen, rejected, prompts, by)
    return Made(rows, yields(preferences, prompts, rows, by))


def sides(candidates: pl.DataFrame, preferences: pl.DataFrame, prompts: pl.DataFrame) -> Sides:
    """Return what each decided comparison preferred, and against what, prompt by prompt."""
    turns = prompts.select("prompt_id").with_row_index("turn")
    first = pl.col("preferred") == "first"
    decided = (
        preferences.unique(["first_id", "second_id"], keep="last", maintain_order=True)
        .filter(pl.col("preferred").is_in(DECIDED))
        .join(turns, on="prompt_id")
        .sort("turn", "first_id", "second_id")
        .select(
            chosen=pl.when(first).then("first_id").otherwise("second_id"),
            rejected=pl.when(first).then("second_id").otherwise("first_id"),
        )
    )
    offered = unrated(candidates)
    return Sides(*(_looked_up(offered, decided[side]) for side in ("chosen", "rejected")))


def _looked_up(candidates: pl.DataFrame, ids: pl.Series) -> pl.DataFrame:
    """Return the candidates of these ids, in their order."""
    wanted = ids.to_frame().select(candidate_id=ids.name)
    return wanted.join(candidates, on="candidate_id", maintain_order="left")


def yields(
    preferences: pl.DataFrame,
    prompts: pl.DataFrame,
    rows: pl.DataFrame,
    by: Origin,
    success: Outcome = Outcome.PAIRED,
) -> pl.DataFrame:
    """Say of each prompt how many rows it gave, or why none."""
    heard = preferences.group_by("prompt_id").agg(tied=(pl.col("preferred") == "tie").any())
    known = prompts.select("prompt_id").join(
        heard, on="prompt_id", how="left", maintain_order="left"
    )
    tied = pl.col("tied")
    reasons = ((tied.is_null(), Outcome.NOT_COMPARED), (tied, Outcome.TIED))
    last = Outcome.UNREAD
    return yield_rows(known, rows, by, success=success, reasons=reasons, otherwise=last)
