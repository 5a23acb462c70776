"""Breaking up answers: the critic lists the atomic statements of each passage.

Only answers to prompts of facts are broken up. A prompt without a reference, or a candidate without
an answer, is not sent to the critic; its row has the reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from ...critics.facts.fact_judge import STATEMENTS, FactJudge, Statements
from ...critics.facts.passages import passages
from ...critics.judge import Reading
from ...critics.status import Status
from ...critics.verify import FACTS
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Breakdown, Candidate
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .judging import JudgedStage, JudgeRequest, Posed, judge_line, judge_params
from .retry_unscored import judged

BREAK_UP = Verb("break_up")
NO_STATEMENTS: Statements = ()
NOT_WRITTEN = frozenset({"failed", "overlong", "truncated_thinking"})


class AnswerPassage(NamedTuple):
    """A passage of an answer and its index; with a `status`, it is not sent to the critic."""

    candidate: Candidate
    place: int = 0
    text: str = ""
    status: Status | None = None


def break_up(it: Iteration, answers: Rows[Candidate], judge: FactJudge) -> Rows[Breakdown]:
    """Commit the statements of each passage of the answers to prompts of facts."""
    config = it.run.config.critic
    breaking = BreakingUp(
        run=it.run,
        iteration=it.number,
        line=judge_line(it.run, it.run.models.feedback, config),
        attempts=config.attempts,
        templates=judge,
        answers=lambda chunk: it.chunk(answers, chunk),
    )
    work = it.work(BREAK_UP, breaking.params, answers)
    planned = judged(breaking, f"break_up:{answers.label}", work)
    return Rows(row_type=Breakdown, stages=(planned,), called=answers.label)


@dataclass(frozen=True, kw_only=True)
class BreakingUp(JudgedStage[AnswerPassage, Statements, Breakdown]):
    """A stage of breakdowns; `answers` returns the answers of a chunk when that chunk begins."""

    row_type = Breakdown
    templates: FactJudge
    answers: Callable[[int], Sequence[Candidate]]

    def depends_on(self) -> Mapping[str, Json]:
        """Return the template, the critic's settings and the limit of passages per answer."""
        return {
            "template": self.templates.digest(STATEMENTS),
            "most": self.run.config.facts.most,
            **judge_params(self.run, self.judge, self.run.config.critic),
        }

    def subjects(self, chunk: int) -> Iterable[AnswerPassage]:
        """Return the passages of the answers."""
        return chain.from_iterable(map(self._passages, self.answers(chunk)))

    def pose(self, subject: AnswerPassage, attempt: int) -> Posed[Statements]:
        """Ask for the statements of a passage."""
        prompt, (name,) = self.run.prompts[subject.candidate.prompt_id], self.ids(subject)
        question = self.templates.ask_statements(prompt, subject.text, self.guard(name))
        seed = derive_seed(self.run.config.seed, "break up", name, attempt)
        return Posed(question, name, seed)

    def ids(self, subject: AnswerPassage) -> list[str]:
        """Return the id of the breakdown."""
        return [row_id("broken", [subject.candidate.candidate_id, subject.place, self.identity])]

    def unasked(self, subject: AnswerPassage) -> list[Reading[Statements]] | None:
        """Return the reason for not sending a passage to the critic; None if it is sent."""
        return None if subject.status is None else [Reading(subject.status.value, NO_STATEMENTS)]

    def rows(self, asked: JudgeRequest[AnswerPassage, Statements]) -> list[Breakdown]:
        """Return the breakdown."""
        (reading,), (name,) = asked.readings, self.ids(asked.subject)
        candidate, place, text, _ = asked.subject
        breakdown = Breakdown(
            breakdown_id=name,
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            judge=self.judge.identity,
            place=place,
            passage=text,
            statements=reading.value if reading.status == SCORED else (),
            status=reading.status,
            attempts=asked.attempts,
            text=asked.text,
        )
        return [breakdown]

    def _passages(self, candidate: Candidate) -> list[AnswerPassage]:
        prompt = self.run.prompts[candidate.prompt_id]
        if prompt.task != FACTS:
            return []
        if prompt.reference is None or not prompt.reference.strip():
            return [AnswerPassage(candidate, status=Status.NO_REFERENCE)]
        if candidate.finish_reason in NOT_WRITTEN:
            return [AnswerPassage(candidate, status=Status(candidate.finish_reason))]
        # A non-empty passage has at least one statement, so the limit of statements also limits
        # passages.
        found = passages(candidate.text)[: self.run.config.facts.most]
        if not found:
            return [AnswerPassage(candidate, status=Status.SCORED)]
        return [AnswerPassage(candidate, n, text) for n, text in enumerate(found)]
