"""The stages that make rows to train on of judged or graded candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import polars as pl

from ...configs.recipes import Binarisation
from ...stores.frames import as_arrow, as_frame, empty_frame, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import (
    Candidate,
    Critique,
    Demonstration,
    FilterCount,
    Grade,
    Pair,
    PairingOutcome,
    Prompt,
    UnpairedAnswer,
)
from ...stores.schemas import RowsByType
from ..data.binarize import Binarising, add_scores, binarisation_counts, binarised_pairs
from ..data.judged_candidates import READ, Deciding, judge, verdicts
from ..data.pairs import BY_CRITIQUE, DERIVE, EITHER, Pairing, Rule
from ..lake.annotations.bring_in import bring_in
from ..run.handles import D, JudgedRows, Rows
from ..run.iteration import Iteration
from ..run.run import Verb, Work
from .balance_length import balance_length
from .unscored import is_import, trained_on

PAIR, DEMONSTRATE, UNPAIR = Verb("pair"), Verb("demonstrate"), Verb("unpair")
BINARISE = Verb("binarise")
LATE = (
    "people's ratings that were imported after iteration {} was trained are not used for it; "
    "`lpfloop rebuild-pairs` makes pairs of them"
)


def pair(it: Iteration, judged: JudgedRows, *, rule: Rule, top_k: int) -> Rows[Pair]:
    """(x, y+, y-): positives of the rule, each against a negative: a random one, or the lowest."""
    return balance_length(
        it, _commit_made(it, PAIR, Pair, judged, rule=rule, top_k=top_k), judged.candidates
    )


def demonstrate(
    it: Iteration, judged: JudgedRows, *, rule: Rule, top_k: int
) -> Rows[Demonstration]:
    """(x, y+): the positives of the rule, as a rejection-sampling set."""
    return _commit_made(it, DEMONSTRATE, Demonstration, judged, rule=rule, top_k=top_k)


def unpair(it: Iteration, judged: JudgedRows) -> Rows[UnpairedAnswer]:
    """(x, y, success or failure): each judged candidate separately."""
    return _commit_made(it, UNPAIR, UnpairedAnswer, judged, rule=EITHER, top_k=1)


def _commit_made(
    it: Iteration,
    verb: Verb,
    row_type: type[D],
    judged: JudgedRows,
    *,
    rule: Rule,
    top_k: int,
) -> Rows[D]:
    """Commit the rows that a rule makes of each prompt's candidates, and each prompt's outcome."""
    cut = it.run.config.pairs.cut_answers if rule == BY_CRITIQUE else "left_out"
    how = Pairing(
        rule=rule,
        top_k=top_k,
        root_seed=it.run.config.seed,
        iteration=it.number,
        cut_answers=cut,
    )
    basis = _PairedOn.of(it, judged, verb.name)

    def make(unit: Unit) -> RowsByType:
        candidates = it.frame(judged.candidates, unit.chunk)
        prompts = [it.run.prompts[x] for x in dict.fromkeys(candidates["prompt_id"])]
        prompt_frame = rows_frame(Prompt, prompts)
        made = DERIVE[row_type](basis.about(candidates, unit.chunk), prompt_frame, how)
        extra: RowsByType = {FilterCount: made.filter_counts} if made.filter_counts else {}
        return {
            row_type: as_arrow(made.rows),
            PairingOutcome: as_arrow(made.outcomes),
            **extra,
        }

    agreement = basis.deciding.agreement
    params: dict[str, Json] = {
        "rule": rule,
        **({} if rule == EITHER else {"top_k": top_k}),
        **({} if agreement is None else {"agreement": agreement}),
        **({} if cut == "left_out" else {"cut_answers": cut}),
    }
    return it.rows(row_type, verb.name, basis.work(verb, params), make)


def binarise(
    it: Iteration, candidates: Rows[Candidate], grades: Rows[Grade], *, rule: Binarisation
) -> Rows[Pair]:
    """(x, y+, y-): each prompt's graded completions against lower-scored ones, by a rule."""
    how = Binarising(rule=rule, root_seed=it.run.config.seed, iteration=it.number)

    def make(unit: Unit) -> RowsByType:
        scored = add_scores(it.frame(candidates, unit.chunk), it.frame(grades, unit.chunk))
        prompts = [it.run.prompts[x] for x in dict.fromkeys(scored["prompt_id"])]
        made = binarised_pairs(scored, rows_frame(Prompt, prompts), how)
        return {
            Pair: as_arrow(made.rows),
            PairingOutcome: as_arrow(made.outcomes),
            FilterCount: binarisation_counts(scored, made, how),
        }

    work = it.work(BINARISE, {"rule": rule}, candidates, grades)
    return balance_length(it, it.rows(Pair, "binarise", work, make), candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairedOn:
    """The judgements of an iteration's candidates by critic, reward model and people.

    `people` are the keys of the units with people's ratings, `annotated` their rows.
    """

    it: Iteration
    judged: JudgedRows
    people: Sequence[str]
    annotated: pl.DataFrame
    deciding: Deciding

    @classmethod
    def of(cls, it: Iteration, judged: JudgedRows, label: str) -> Self:
        """Return the judgements that the stage of this label reads."""
        deciding = Deciding.of(it.run.config.model_dump(include={"critic", "pairs"}))
        by_people = judged.critiques is not None and deciding.people == "decide"
        people = _ratings_by_people(it, label) if by_people else []
        tables = [as_frame(it.run.store.table(Critique, key)) for key in people]
        annotated = pl.concat([empty_frame("critiques"), *tables]).select(READ["critiques"])
        return cls(it=it, judged=judged, people=people, annotated=annotated, deciding=deciding)

    def work(self, verb: Verb, params: Json) -> Work:
        """Return the work of a stage that reads it; each unit depends on all ratings by people."""
        work = self.it.work(verb, params, *self.judged.handles)
        return replace(
            work,
            upstream=(*work.upstream, *self.people),
            reads=lambda: [(*keys, *self.people) for keys in work.reads()],
        )

    def about(self, candidates: pl.DataFrame, chunk: int) -> pl.DataFrame:
        """Return a chunk's candidates, each with its reward and the verdict on it."""
        source = self.judged.rewards
        rewards = empty_frame("rewards") if source is None else self.it.frame(source, chunk)
        if self.judged.critiques is None:
            return judge(candidates, rewards)
        people = self.annotated.join(candidates, on="candidate_id", how="semi")
        critiques = pl.concat([self.it.frame(self.judged.critiques, chunk), people])
        return judge(candidates, rewards, verdicts(critiques, self.deciding))


def _ratings_by_people(it: Iteration, label: str) -> list[str]:
    """Return the units with the ratings that the stage `label` reads, before it is planned.

    New ratings by hand are read first. If the ratings differ from the planned ones, the stage and
    everything made from it are discarded, unless a model was trained on it.
    """
    journal = it.run.store.journal
    bring_in(it.run.store)
    parts = [p for p in journal.parts(table="critiques", iteration=it.number) if is_import(p.stage)]
    imports = [part.stage for part in parts if part.rows]
    names = [state.stage for state in journal.stages() if state.iteration == it.number]
    if label in names and any(names.index(name) > names.index(label) for name in imports):
        if trained_on(journal, it.number, label):
            it.run.reporter.note(LATE.format(it.number), "warning", code="W-LATE-RATINGS")
            imports = [name for name in imports if names.index(name) < names.index(label)]
        else:
            it.run.store.when_there_is_room(lambda: journal.forget(it.number, label))
    return [part.unit for part in parts if part.stage in imports]
