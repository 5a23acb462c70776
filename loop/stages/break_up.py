"""Breaking up answers: their passages, each as the atomic statements that the critic finds in it.

Only answers to prompts of facts are broken up. Without a reference, or without an answer, nobody is
asked, and the row says why.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from ...critics.facts.fact_judge import STATEMENTS, FactJudge
from ...critics.facts.passages import passages
from ...critics.facts.statement_list import Statements
from ...critics.judge import Reading
from ...critics.status import Status
from ...critics.verify import FACTS
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Breakdown, Candidate
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Run, Verb
from .ask_judge import JudgedStage, JudgeInquiry, Posed, judge_params
from .retry_unscored import judged

BREAK_UP = Verb("break_up")
NO_STATEMENTS: Statements = ()
NOT_WRITTEN = frozenset({"failed", "overlong", "truncated_thinking"})


class AnswerPassage(NamedTuple):
    """A passage of an answer, by its place there; with a `status`, nobody is asked about it."""

    candidate: Candidate
    place: int = 0
    text: str = ""
    status: Status | None = None


PassageInquiry = JudgeInquiry[AnswerPassage, Statements]


def break_up(it: Iteration, answers: Rows[Candidate], judge: FactJudge) -> Rows[Breakdown]:
    """Commit the statements of each passage of the answers to prompts of facts."""
    breaking = BreakingUp(
        run=it.run,
        iteration=it.number,
        judge=judge,
        answers=lambda chunk: it.chunk(answers, chunk),
    )
    owed = it.work(BREAK_UP, breaking.params, answers)
    planned = judged(it.run, it.number, f"break_up:{answers.label}", owed, breaking.stage)
    return Rows(row_type=Breakdown, stages=(planned,), called=answers.label)


@dataclass(frozen=True, kw_only=True)
class BreakingUp:
    """A stage of breakdowns; `answers` gives those of a chunk, when it is its turn."""

    run: Run
    iteration: int
    judge: FactJudge
    answers: Callable[[int], Sequence[Candidate]]

    @property
    def stage(self) -> JudgedStage[AnswerPassage, Statements, Breakdown]:
        """How the critic is asked for the statements of each passage."""
        return JudgedStage(
            run=self.run,
            judge=self.run.models.feedback,
            settings=self.run.config.critic,
            row_type=Breakdown,
            subjects=lambda chunk: chain.from_iterable(map(self._passages, self.answers(chunk))),
            pose=self._pose,
            ids=lambda subject: [self._id(subject)],
            rows=lambda asked: [self._row(asked)],
            unasked=lambda subject: (
                None if subject.status is None else [Reading(subject.status.value, NO_STATEMENTS)]
            ),
        )

    @property
    def params(self) -> Json:
        """What the keys of the stage hold: all that its rows depend on besides the answers."""
        return {**self.identity, "attempts": self.run.config.critic.attempts}

    @cached_property
    def identity(self) -> dict[str, Json]:
        """What a breakdown depends on besides its answer and the number of replies."""
        return {
            "template": self.judge.digest(STATEMENTS),
            "most": self.run.config.facts.most,
            **judge_params(self.run, self.run.models.feedback, self.run.config.critic),
        }

    def _passages(self, candidate: Candidate) -> list[AnswerPassage]:
        prompt = self.run.prompts[candidate.prompt_id]
        if prompt.task != FACTS:
            return []
        if prompt.reference is None or not prompt.reference.strip():
            return [AnswerPassage(candidate, status=Status.NO_REFERENCE)]
        if candidate.finish_reason in NOT_WRITTEN:
            return [AnswerPassage(candidate, status=Status(candidate.finish_reason))]
        # Each passage has a statement at least, if any: no more are asked for than are judged.
        found = passages(candidate.text)[: self.run.config.facts.most]
        if not found:
            return [AnswerPassage(candidate, status=Status.SCORED)]
        return [AnswerPassage(candidate, n, text) for n, text in enumerate(found)]

    def _pose(self, subject: AnswerPassage, number: int) -> Posed[Statements]:
        prompt, name = self.run.prompts[subject.candidate.prompt_id], self._id(subject)
        seed = derive_seed(self.run.config.seed, "break up", name, number)
        key = self.run.guard(name, self.run.models.feedback)
        return Posed(self.judge.ask_statements(prompt, subject.text, key), name, seed)

    def _id(self, subject: AnswerPassage) -> str:
        return row_id("broken", [subject.candidate.candidate_id, subject.place, self.identity])

    def _row(self, asked: PassageInquiry) -> Breakdown:
        (reading,) = asked.readings or [Reading(Status.FAILED.value, NO_STATEMENTS)]
        candidate, place, text, _ = asked.subject
        return Breakdown(
            breakdown_id=self._id(asked.subject),
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            judge=self.run.models.feedback.identity,
            place=place,
            passage=text,
            statements=reading.value if reading.status == SCORED else (),
            status=reading.status,
            attempts=asked.attempts,
            text=asked.text,
        )
