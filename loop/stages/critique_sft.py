"""From critiques to demonstrations for a critique model (UltraFeedback, Section 2.6).

The prompt of a demonstration is the critic's question about an answer, the response its critique: a
policy trained on them is a critic that any run can use. Critiques that the loop could not read are
skipped. Question and reply are the unguarded ones (`critics.guard`), since a nonce teaches nothing;
use the trained critic with `guard` false.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...critics.feedback import FeedbackCritic
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
    Prompt,
    Receipt,
)
from ...stores.schemas import RowsByType
from ..data.critique_lessons import UNREADABLE, Lessons, lesson_yields
from ..data.receipts import KEPT, receipts
from ..data.training_rows import Origin
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb

DEMONSTRATE_CRITIQUES = Verb("demonstrate_critiques")
CRITIQUED = "critique"
"""The rule of these demonstrations, and the name of their receipts."""
CRITIQUED_WITH_REFERENCE = "critique_with_reference"
"""The rule of demonstrations whose question shows a reference, if they are separated."""


def demonstrate_critiques(
    it: Iteration,
    candidates: Rows[Candidate],
    critiques: Rows[Critique],
    *,
    by_reference: bool = False,
) -> Rows[Demonstration]:
    """Commit a demonstration of each readable critique.

    With `by_reference`, demonstrations whose question shows a reference get a separate rule.
    """
    by = Origin(rule=CRITIQUED, iteration=it.number)

    def make(unit: Unit) -> RowsByType:
        drafts = it.chunk(candidates, unit.chunk)
        said = it.chunk(critiques, unit.chunk)
        made = lessons(it.run.critic, it.run.prompts, drafts, said, it.number)
        rows = _told_apart(made.rows, said) if by_reference else made.rows
        return {
            Demonstration: rows,
            PairingOutcome: as_arrow(lesson_yields(rows_frame(Candidate, drafts), made.rows, by)),
            Receipt: receipts(it.number, CRITIQUED, "candidates", made.fates),
        }

    apart: Mapping[str, Json] = {"by_reference": True} if by_reference else {}
    params: Json = {"critic": it.run.critic.digest, **apart}
    work = it.work(DEMONSTRATE_CRITIQUES, params, candidates, critiques)
    return it.rows(Demonstration, "demonstrate_critiques", work, make)


def lessons(
    critic: FeedbackCritic,
    prompts: Mapping[str, Prompt],
    drafts: Sequence[Candidate],
    critiques: Sequence[Critique],
    iteration: int,
) -> Lessons:
    """Return one demonstration for each critique that can be read; `prompts` are by id."""
    texts = {draft.candidate_id: draft.text for draft in drafts}
    ranks: dict[str, int] = {}
    made = Lessons([], {})
    for critique in critiques:
        question = critic.ask(prompts[critique.prompt_id], texts[critique.candidate_id])
        fate = critique.status
        if fate == SCORED:
            (read,) = question.read(without_mark(critique.text), "stop")
            fate = KEPT if read.status == SCORED else UNREADABLE
        made.fates.setdefault(fate, []).append(critique.candidate_id)
        if fate == KEPT:
            rank = ranks.get(critique.prompt_id, 0)
            ranks[critique.prompt_id] = rank + 1
            made.rows.append(_lesson(critique, question.messages, rank, iteration))
    return made


def _lesson(
    critique: Critique, asked: tuple[Message, ...], rank: int, iteration: int
) -> Demonstration:
    return Demonstration(
        demonstration_id=row_id("demo", [CRITIQUED, iteration, critique.critique_id]),
        prompt_id=critique.prompt_id,
        iteration=iteration,
        candidate_id=critique.candidate_id,
        rule=CRITIQUED,
        rank=rank,
        ratings=tuple(a.rating for a in critique.aspects if a.rating is not None),
        reward=None,
        prompt=asked,
        completion=(Message(role="assistant", content=without_mark(critique.text)),),
    )


def _told_apart(
    rows: Sequence[Demonstration], critiques: Sequence[Critique]
) -> list[Demonstration]:
    """Return the demonstrations, under another rule if the question shows a reference."""
    shown = {c.candidate_id for c in critiques if c.reference_used}
    return [
        replace(row, rule=CRITIQUED_WITH_REFERENCE) if row.candidate_id in shown else row
        for row in rows
    ]
