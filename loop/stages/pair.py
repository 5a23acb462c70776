"""The stages that make rows to train on of judged or graded candidates."""

import polars as pl

from ...configs.recipes import Binarisation
from ...stores.frames import as_arrow, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Demonstration, Grade, Pair, Prompt, Receipt, Yield
from ...stores.schemas import RowsByType
from ..data.binarize import Binarising, binarisation_receipts, binarised_pairs, graded
from ..data.judged_candidates import judge, verdicts
from ..data.pairs import DERIVE, Pairing, Rule
from ..run.handles import D, JudgedRows, Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .balance_length import balanced
from .human_ratings import HumanRatings, human_ratings

PAIR, DEMONSTRATE, BINARISE = Verb("pair"), Verb("demonstrate"), Verb("binarise")


def pair(it: Iteration, judged: JudgedRows, *, rule: Rule, top_k: int) -> Rows[Pair]:
    """(x, y+, y-): positives of the rule, each against a random negative."""
    return balanced(it, _made(it, PAIR, Pair, judged, rule=rule, top_k=top_k), judged.candidates)


def demonstrate(
    it: Iteration, judged: JudgedRows, *, rule: Rule, top_k: int
) -> Rows[Demonstration]:
    """(x, y+): the positives of the rule, as a rejection-sampling set."""
    return _made(it, DEMONSTRATE, Demonstration, judged, rule=rule, top_k=top_k)


def _made(
    it: Iteration, verb: Verb, row_type: type[D], judged: JudgedRows, *, rule: Rule, top_k: int
) -> Rows[D]:
    """Commit what a rule makes of each prompt's candidates, and what became of each prompt."""
    config = it.run.config
    how = Pairing(
        rule=rule,
        top_k=top_k,
        root_seed=config.seed,
        iteration=it.number,
        distinct=row_type is Pair and config.pairs.distinct_positives,
    )
    params: dict[str, Json] = {"rule": how.rule, "top_k": how.top_k}
    if how.distinct:
        params["distinct"] = True

    people = _people(it, judged, verb)
    annotated = people.frame()

    def make(unit: Unit) -> RowsByType:
        candidates = it.frame(judged.candidates, unit.chunk)
        prompts = [it.run.prompts[x] for x in dict.fromkeys(candidates["prompt_id"])]
        asked = rows_frame(Prompt, prompts)
        said = _judged(it, judged, candidates, unit.chunk, annotated)
        made = DERIVE[row_type](said, asked, how)
        told: RowsByType = {Receipt: made.receipts} if how.distinct else {}
        return {row_type: as_arrow(made.rows), Yield: as_arrow(made.yields), **told}

    work = people.read_by(it.work(verb, params, *judged.handles))
    return it.rows(row_type, verb.name, work, make)


def _people(it: Iteration, judged: JudgedRows, verb: Verb) -> HumanRatings:
    """Return the ratings by people that decide, beside those of the critic."""
    if judged.critiques is None or it.run.config.pairs.people == "ignored":
        return HumanRatings(it=it, keys=())
    return human_ratings(it, verb.name)


def binarise(
    it: Iteration, candidates: Rows[Candidate], grades: Rows[Grade], *, rule: Binarisation
) -> Rows[Pair]:
    """(x, y+, y-): each prompt's best graded completion against one with a lower score."""
    how = Binarising(rule=rule, root_seed=it.run.config.seed, iteration=it.number)

    def make(unit: Unit) -> RowsByType:
        scored = graded(it.frame(candidates, unit.chunk), it.frame(grades, unit.chunk))
        prompts = [it.run.prompts[x] for x in dict.fromkeys(scored["prompt_id"])]
        made = binarised_pairs(scored, rows_frame(Prompt, prompts), how)
        return {
            Pair: as_arrow(made.rows),
            Yield: as_arrow(made.yields),
            Receipt: binarisation_receipts(scored, made, how),
        }

    work = it.work(BINARISE, {"rule": rule}, candidates, grades)
    return balanced(it, it.rows(Pair, "binarise", work, make), candidates)


def _judged(
    it: Iteration,
    judged: JudgedRows,
    candidates: pl.DataFrame,
    chunk: int,
    annotated: pl.DataFrame,
) -> pl.DataFrame:
    """Return the chunk's candidates, each with its reward and what was said of it."""
    rewards = it.frame(judged.rewards, chunk)
    if judged.critiques is None:
        return judge(candidates, rewards)
    people = annotated.join(candidates, on="candidate_id", how="semi", maintain_order="left")
    critiques = pl.concat([it.frame(judged.critiques, chunk), people])
    return judge(candidates, rewards, verdicts(critiques))
