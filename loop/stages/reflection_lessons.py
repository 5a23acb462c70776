"""Reflection lessons: (x, y, f) to y~, of answers that a teacher improved (RLRF, Appendix C).

The prompt of a lesson is the loop's prompt for reflection, the response the teacher's better
answer. It is kept only if the better answer is right: by the verifier if the prompt can be
verified, else by the teacher's own critique of it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import polars as pl

from ...critics.guard import without_mark
from ...stores.frames import as_arrow, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json, row_id
from ...stores.records import (
    SCORED,
    Candidate,
    Critique,
    Demonstration,
    Message,
    PairingOutcome,
    Receipt,
)
from ...stores.schemas import RowsByType
from ..data.judged_candidates import VERIFIER
from ..data.receipts import KEPT, keeps, receipts
from ..data.training_rows import Origin, Outcome, yield_rows
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb

DEMONSTRATE_REFLECTIONS = Verb("demonstrate_reflections")
REFLECTED = "reflection"
"""The rule of these demonstrations, and the name of their receipts."""
NOT_WHOLE, FAULTED = "not_whole", "faulted_by_critic"
WRONG, APPROVED = "wrong_by_verifier", f"{KEPT}: approved by critic"
VERIFIED = f"{KEPT}: verified"


def demonstrate_reflections(
    it: Iteration,
    drafts: Rows[Candidate],
    critiques: Rows[Critique],
    revised: Rows[Candidate],
    said: Rows[Critique],
) -> Rows[Demonstration]:
    """Commit a demonstration of each revised answer that passes; `said` are verdicts on them."""

    def make(unit: Unit) -> RowsByType:
        before = it.chunk(drafts, unit.chunk)
        passed, fates = _passed(it.chunk(revised, unit.chunk), it.chunk(said, unit.chunk))
        rows = list(_lessons(it, passed, before, it.chunk(critiques, unit.chunk)))
        return {
            Demonstration: rows,
            PairingOutcome: as_arrow(_yields(before, rows, it.number)),
            Receipt: receipts(it.number, REFLECTED, "candidates", fates),
        }

    params: Json = {"critic": it.run.critic.digest}
    work = it.work(DEMONSTRATE_REFLECTIONS, params, drafts, critiques, revised, said)
    return it.rows(Demonstration, DEMONSTRATE_REFLECTIONS.name, work, make)


def fate_of(better: Candidate, verdict: Critique | None) -> str:
    """Return the fate of a revised answer, by the verdict on it: kept, or why not."""
    if not better.usable or verdict is None:
        return NOT_WHOLE
    if verdict.status != SCORED:
        return verdict.status
    by_verifier = verdict.critic == VERIFIER
    if all(aspect.rating == 1 for aspect in verdict.aspects):
        return VERIFIED if by_verifier else APPROVED
    return WRONG if by_verifier else FAULTED


def _passed(
    revised: Sequence[Candidate], said: Sequence[Critique]
) -> tuple[list[tuple[Candidate, Critique]], dict[str, list[str]]]:
    """Return the revised answers that pass with their verdicts, and the outcome of every one."""
    verdicts = {verdict.candidate_id: verdict for verdict in said}
    passed, fates = list[tuple[Candidate, Critique]](), dict[str, list[str]]()
    for better in revised:
        verdict = verdicts.get(better.candidate_id)
        fate = fate_of(better, verdict)
        fates.setdefault(fate, []).append(better.candidate_id)
        if verdict is not None and keeps(fate):
            passed.append((better, verdict))
    return passed, fates


def _lessons(
    it: Iteration,
    passed: Sequence[tuple[Candidate, Critique]],
    drafts: Sequence[Candidate],
    critiques: Sequence[Critique],
) -> Iterator[Demonstration]:
    """Give a demonstration of each: the question that shows draft and critique, and the answer."""
    texts = {draft.candidate_id: draft.text for draft in drafts}
    feedback = {critique.critique_id: without_mark(critique.text) for critique in critiques}
    ranks = Counter[str]()
    for better, verdict in passed:
        prompt = it.run.prompts[better.prompt_id]
        shown = texts[str(better.parent_id)], feedback[str(better.critique_id)]
        yield Demonstration(
            demonstration_id=row_id("demo", [REFLECTED, it.number, better.candidate_id]),
            prompt_id=better.prompt_id,
            iteration=it.number,
            candidate_id=better.candidate_id,
            rule=REFLECTED,
            rank=ranks[better.prompt_id],
            ratings=tuple(a.rating for a in verdict.aspects if a.rating is not None),
            reward=None,
            prompt=it.run.critic.reflect(prompt, *shown),
            completion=(Message(role="assistant", content=better.text),),
        )
        ranks[better.prompt_id] += 1


def _yields(
    drafts: Sequence[Candidate], rows: Sequence[Demonstration], iteration: int
) -> pl.DataFrame:
    """Return the number of demonstrations that each prompt gave."""
    asked = rows_frame(Candidate, drafts).unique("prompt_id", keep="first", maintain_order=True)
    by = Origin(rule=REFLECTED, iteration=iteration)
    done, none = Outcome.DEMONSTRATED, Outcome.NO_POSITIVE
    return yield_rows(asked, rows_frame(Demonstration, rows), by, success=done, otherwise=none)
