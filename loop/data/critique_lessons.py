"""Demonstrations of critiques: the critic's question about an answer, and the reply to learn.

For a critique with an overall score the question is the grader's, without a guard
(`critics.guard`), with the principle of the answer. The reply is the judge's text unchanged; for a
published critique, or a judge that replied with an object, it is the critique followed by the score
in the requested form. If the grader's reader does not read that score from the reply, the critique
is skipped.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from ...critics.grading.grade_reply import Appraisal
from ...critics.grading.graded_aspects import SCALES
from ...critics.grading.grader import Grader
from ...critics.guard import without_mark
from ...critics.judge import Question
from ...critics.reply_schema import is_object
from ...critics.text_forms import with_score
from ...stores.frames import rows_frame
from ...stores.keys import row_id
from ...stores.records import SCORED, Candidate, Demonstration, Grade, Message, Prompt
from .principles import Principle
from .receipts import KEPT
from .training_rows import Origin, Outcome, yield_rows

GRADED_CRITIQUE: Final = "overall-critique"
"""The rule of demonstrations made of overall scores, and the name of their receipts."""
UNREADABLE = "unreadable"
"""The critique has ratings, but is not in the requested form, like the verifier's."""


class Lessons(NamedTuple):
    """Demonstrations, and the candidates by the fate of their critique: kept, or why not."""

    rows: list[Demonstration]
    fates: dict[str, list[str]]


def graded_lessons(
    grader: Grader,
    prompts: Mapping[str, Prompt],
    candidates: Sequence[Candidate],
    grades: Sequence[Grade],
    iteration: int,
) -> Lessons:
    """Return one demonstration for each overall grade that can be read; `prompts` are by id."""
    known = {candidate.candidate_id: candidate for candidate in candidates}
    ranks: dict[str, int] = {}
    made = Lessons([], {})
    for grade in grades:
        if grade.aspect != "overall" or grade.candidate_id not in known:
            continue
        question = _question(grader, prompts[grade.prompt_id], known[grade.candidate_id])
        reply = _reply(grade, grader)
        fate = _fate(grade, question, reply)
        made.fates.setdefault(fate, []).append(grade.candidate_id)
        if fate == KEPT:
            rank = ranks.get(grade.prompt_id, 0)
            ranks[grade.prompt_id] = rank + 1
            made.rows.append(_lesson(grade, question.messages, reply, rank, iteration))
    return made


def lesson_yields(
    candidates: pl.DataFrame, rows: Sequence[Demonstration], by: Origin
) -> pl.DataFrame:
    """Return the number of demonstrations of each of the candidates' prompts."""
    asked = candidates.unique("prompt_id", keep="first", maintain_order=True)
    made, none = Outcome.DEMONSTRATED, Outcome.NONE_RATED
    return yield_rows(asked, rows_frame(Demonstration, rows), by, success=made, otherwise=none)


def _question(grader: Grader, prompt: Prompt, candidate: Candidate) -> Question[Appraisal]:
    told = candidate.principle and Principle.read(candidate.principle).text
    return grader.ask("overall", prompt, [candidate.text], told)


def _reply(grade: Grade, grader: Grader) -> str:
    """Return the judge's reply; of a published grade, or an object, one in the form asked for."""
    as_it_came = grade.attempts and not is_object(grade.text)
    if as_it_came or grade.rating is None:
        return without_mark(grade.text)
    scale, critique = SCALES["overall"], grade.rationale.strip()
    before, below = with_score(grader.score_form, grade.rating, scale.best, critique)
    return f"{before}\n\n{below}".strip()


def _fate(grade: Grade, question: Question[Appraisal], reply: str) -> str:
    if grade.status != SCORED:
        return grade.status
    (read,) = question.read(reply, "stop")
    return KEPT if read.value.rating == grade.rating and grade.rationale.strip() else UNREADABLE


def _lesson(
    grade: Grade, asked: tuple[Message, ...], reply: str, rank: int, iteration: int
) -> Demonstration:
    return Demonstration(
        demonstration_id=row_id("demo", [GRADED_CRITIQUE, iteration, grade.grade_id]),
        prompt_id=grade.prompt_id,
        iteration=iteration,
        candidate_id=grade.candidate_id,
        rule=GRADED_CRITIQUE,
        rank=rank,
        ratings=(),
        reward=grade.rating,
        prompt=asked,
        completion=(Message(role="assistant", content=reply),),
    )
