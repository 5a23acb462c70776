"""Demonstrations for judges and for reflection, of what judges and teachers said.

A policy that learns critiques (UltraFeedback, Section 2.6) is a critic that any run can use; one
that learns overall grades can be `grading.model`. Questions and replies are the unguarded ones
(`critics.guard`), since a nonce teaches nothing; use the trained judge with `guard` false.

The prompt of a reflection lesson (RLRF, Appendix C) is the loop's prompt for reflection, the
response a teacher's better answer. It is kept only if the better answer is right: by the verifier
if the prompt can be verified, else by the teacher's own critique of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...configs.mistakes import ConfigError
from ...configs.recipes import Pooled
from ...critics.feedback import FeedbackCritic
from ...critics.guard import without_mark
from ...stores.frames import rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import SCORED, Candidate, Critique, Demonstration, Grade, Prompt, Rating
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT
from ..data.judged_candidates import VERIFIER
from ..data.lessons import UNREADABLE, Lessons, graded_lessons
from ..data.training_rows import Outcome
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb

DEMONSTRATE_CRITIQUES = Verb("demonstrate_critiques")
DEMONSTRATE_GRADES = Verb("demonstrate_grades")
DEMONSTRATE_REFLECTIONS = Verb("demonstrate_reflections")
CRITIQUED, REFLECTED = "critique", "reflection"
"""The rules of these demonstrations, and the names of their filter counts."""
CRITIQUED_WITH_REFERENCE = "critique_with_reference"
"""The rule of demonstrations whose question shows a reference, if they are separated."""
NOT_WHOLE, FAULTED = "not_whole", "faulted_by_critic"
WRONG, APPROVED = "wrong_by_verifier", f"{KEPT}: approved by critic"
VERIFIED = f"{KEPT}: verified"


def demonstrate_critiques(
    it: Iteration,
    candidates: Rows[Candidate],
    critiques: Rows[Critique],
    *,
    by_reference: bool = False,
) -> Rows[Demonstration]:
    """Commit a demonstration of each readable critique.

    With `by_reference`, demonstrations whose question shows a reference get a separate rule.

    Raises:
        ConfigError: if the critic is the verifier, which is asked no question.
    """
    if it.run.config.critic.kind == "verifier":
        raise ConfigError(
            f"critic.kind is verifier, and the recipe {it.run.config.recipe.name} learns from a "
            "critic's replies: set critic.kind=feedback, and name one by --critic FOLDER or URL"
        )

    def make(unit: Unit) -> RowsByType:
        drafts, judged = it.chunk(candidates, unit.chunk), it.chunk(critiques, unit.chunk)
        made = critique_lessons(it.run.critic, it.run.prompts, drafts, judged, it.number)
        apart = {c.candidate_id for c in judged if by_reference and c.reference_used}
        rows = [
            replace(row, rule=CRITIQUED_WITH_REFERENCE) if row.candidate_id in apart else row
            for row in made.rows
        ]
        return {**made.tables(rows_frame(Candidate, drafts)), Demonstration: rows}

    by: Mapping[str, Json] = {"by_reference": True} if by_reference else {}
    params: Json = {"critic": it.run.critic.digest, **by}
    work = it.work(DEMONSTRATE_CRITIQUES, params, candidates, critiques)
    return it.rows(Demonstration, DEMONSTRATE_CRITIQUES.name, work, make)


def critique_lessons(
    critic: FeedbackCritic,
    prompts: Mapping[str, Prompt],
    drafts: Sequence[Candidate],
    critiques: Sequence[Critique],
    iteration: int,
) -> Lessons:
    """Return one demonstration for each critique that can be read; `prompts` are by id."""
    known = {draft.candidate_id: draft for draft in drafts}
    made = Lessons(rule=CRITIQUED, iteration=iteration)
    for critique in critiques:
        about, reply = known[critique.candidate_id], without_mark(critique.text)
        question, fate = critic.ask(prompts[critique.prompt_id], about.text), critique.status
        if fate == SCORED:
            (read,) = question.read(reply, "stop")
            fate = KEPT if read.status == SCORED else UNREADABLE
        ratings: list[Rating | None] = [aspect.rating for aspect in critique.aspects]
        made.add(fate, about, critique.critique_id, question.messages, reply, ratings=ratings)
    return made


def demonstrate_grades(
    it: Iteration, candidates: Rows[Candidate], grades: Rows[Grade]
) -> Rows[Demonstration]:
    """Commit a demonstration of each overall grade that can be read.

    Raises:
        RuntimeError: if the run was opened as one that learns from no grades.
    """
    it.require(Pooled, "demonstrate_grades")
    grader = it.run.grader
    if grader is None:
        raise RuntimeError("this run was opened without a grader: see `judges_of`")

    def make(unit: Unit) -> RowsByType:
        drafts, judged = it.chunk(candidates, unit.chunk), it.chunk(grades, unit.chunk)
        made = graded_lessons(grader, it.run.prompts, drafts, judged, it.number)
        return made.tables(rows_frame(Candidate, drafts))

    params: Json = {"grader": grader.digest("overall")}
    work = it.work(DEMONSTRATE_GRADES, params, candidates, grades)
    return it.rows(Demonstration, DEMONSTRATE_GRADES.name, work, make)


def demonstrate_reflections(
    it: Iteration,
    drafts: Rows[Candidate],
    critiques: Rows[Critique],
    revised: Rows[Candidate],
    of_critiques: Rows[Critique],
) -> Rows[Demonstration]:
    """Commit a demonstration of each revised answer that passes by its critiques."""

    def make(unit: Unit) -> RowsByType:
        before = it.chunk(drafts, unit.chunk)
        texts = {draft.candidate_id: draft.text for draft in before}
        feedback = {c.critique_id: without_mark(c.text) for c in it.chunk(critiques, unit.chunk)}
        verdicts = {verdict.candidate_id: verdict for verdict in it.chunk(of_critiques, unit.chunk)}
        made = Lessons(rule=REFLECTED, iteration=it.number, missing=Outcome.NO_POSITIVE)
        for better in it.chunk(revised, unit.chunk):
            verdict = verdicts.get(better.candidate_id)
            shown = texts[str(better.parent_id)], feedback[str(better.critique_id)]
            question = it.run.critic.reflect(it.run.prompts[better.prompt_id], *shown)
            ratings: list[Rating | None] = [a.rating for a in (verdict.aspects if verdict else ())]
            fate, name = fate_of(better, verdict), better.candidate_id
            made.add(fate, better, name, question, better.text, ratings=ratings)
        return made.tables(rows_frame(Candidate, before))

    params: Json = {"critic": it.run.critic.digest}
    work = it.work(DEMONSTRATE_REFLECTIONS, params, drafts, critiques, revised, of_critiques)
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
