"""Demonstrations of what a judge or a teacher said: the question, and the reply to learn.

For an overall grade the question is the grader's, without a guard (`critics.guard`), with the
principle of the answer. The reply is the judge's text unchanged; for a published critique, or a
judge that replied with an object, it is the critique followed by the score in the requested form.
If the grader's reader does not read that score from the reply, the critique is skipped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from ...critics.grading.grade_reply import score_line
from ...critics.grading.grader import Grader
from ...critics.guard import without_mark
from ...critics.reply_schema import is_object
from ...stores.frames import as_arrow, rows_frame
from ...stores.keys import row_id
from ...stores.records import (
    SCORED,
    Candidate,
    Demonstration,
    FilterCount,
    Grade,
    Message,
    PairingOutcome,
    Prompt,
    Rating,
)
from ...stores.schemas import RowsByType
from .filter_counts import KEPT, filter_counts, keeps
from .principles import Principle
from .training_rows import Origin, Outcome, outcome_rows

GRADED_CRITIQUE: Final = "overall-critique"
"""The rule of demonstrations made of overall scores, and the name of their filter counts."""
UNREADABLE = "unreadable"
"""The critique has ratings, but is not in the requested form, like the verifier's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """Demonstrations of one rule, and the candidates by the fate of their lesson.

    `missing` is the outcome of a prompt without one.
    """

    rule: str
    iteration: int
    missing: Outcome = Outcome.NONE_RATED
    rows: list[Demonstration] = field(default_factory=list[Demonstration])
    fates: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _ranks: Counter[str] = field(default_factory=Counter[str])

    def add(
        self,
        fate: str,
        about: Candidate,
        source_id: str,
        question: Sequence[Message],
        reply: str,
        *,
        ratings: Sequence[Rating | None] = (),
        reward: float | None = None,
    ) -> None:
        """Count a candidate's fate; if it is kept, add the demonstration made of `source_id`."""
        self.fates.setdefault(fate, []).append(about.candidate_id)
        if not keeps(fate):
            return
        row = Demonstration(
            demonstration_id=row_id("demo", [self.rule, self.iteration, source_id]),
            prompt_id=about.prompt_id,
            iteration=self.iteration,
            candidate_id=about.candidate_id,
            rule=self.rule,
            rank=self._ranks[about.prompt_id],
            ratings=tuple(rating for rating in ratings if rating is not None),
            reward=reward,
            prompt=tuple(question),
            completion=(Message(role="assistant", content=reply),),
        )
        self.rows.append(row)
        self._ranks[about.prompt_id] += 1

    def tables(self, drafts: pl.DataFrame) -> RowsByType:
        """Return the rows, each draft's prompt's number of them, and filter counts of the fates."""
        firsts = drafts.unique("prompt_id", keep="first", maintain_order=True)
        by = Origin(rule=self.rule, iteration=self.iteration)
        made = rows_frame(Demonstration, self.rows)
        outcomes = outcome_rows(
            firsts, made, by, success=Outcome.DEMONSTRATED, otherwise=self.missing
        )
        return {
            Demonstration: self.rows,
            PairingOutcome: as_arrow(outcomes),
            FilterCount: filter_counts(self.iteration, self.rule, "candidates", self.fates),
        }


def graded_lessons(
    grader: Grader,
    prompts: Mapping[str, Prompt],
    candidates: Sequence[Candidate],
    grades: Sequence[Grade],
    iteration: int,
) -> Lessons:
    """Return one demonstration for each overall grade that can be read; `prompts` are by id."""
    known = {candidate.candidate_id: candidate for candidate in candidates}
    made = Lessons(rule=GRADED_CRITIQUE, iteration=iteration)
    for grade in grades:
        if grade.aspect != "overall" or grade.candidate_id not in known:
            continue
        about, reply, fate = known[grade.candidate_id], _reply(grade), grade.status
        principle = about.principle and Principle.read(about.principle).text
        question = grader.ask("overall", prompts[grade.prompt_id], [about.text], principle)
        if fate == SCORED:
            (read,) = question.read(reply, "stop")
            same = read.value.rating == grade.rating and grade.rationale.strip()
            fate = KEPT if same else UNREADABLE
        made.add(fate, about, grade.grade_id, question.messages, reply, reward=grade.rating)
    return made


def _reply(grade: Grade) -> str:
    """Return the judge's reply; of a published grade, or an object, one in the form asked for."""
    as_it_came = grade.attempts and not is_object(grade.text)
    if as_it_came or grade.rating is None:
        return without_mark(grade.text)
    return f"{grade.rationale.strip()}\n\n{score_line(grade.rating)}"
