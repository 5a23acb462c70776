"""The statements of answers to prompts of facts, and whether a reference supports each.

The critic lists the atomic statements of each passage. A prompt without a reference, or a candidate
without an answer, is not sent to the critic; its row has the reason. Then the critic gives a
verdict on each statement. One that repeats an earlier one of its answer is judged once; statements
beyond `facts.most` are stored without a verdict.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from ...critics.facts.fact_judge import (
    STATEMENTS,
    SUPPORT,
    FactJudge,
    Statements,
    StatementSupport,
)
from ...critics.facts.fact_score import BEYOND
from ...critics.facts.passages import passages
from ...critics.judge import Reading
from ...critics.status import Status
from ...critics.verify import FACTS
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Breakdown, Candidate, Claim
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .judging import (
    JudgedStage,
    JudgeRequest,
    Posed,
    judge_line,
    judge_params,
)
from .retry_unscored import run_judgements

BREAK_UP, JUDGE_CLAIMS = Verb("break_up"), Verb("judge_claims")
NO_STATEMENTS: Statements = ()
NOT_WRITTEN = frozenset({"failed", "overlong", "truncated_thinking"})


class AnswerPassage(NamedTuple):
    """A passage of an answer and its index; with a `status`, it is not sent to the critic."""

    candidate: Candidate
    place: int = 0
    text: str = ""
    status: Status | None = None


class JudgedStatement(NamedTuple):
    """A statement of an answer, by its place there; `beyond` the most that are judged or not."""

    candidate_id: str
    prompt_id: str
    place: int
    text: str
    beyond: bool


JudgedStatements = tuple[JudgedStatement, ...]


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
    planned = run_judgements(breaking, f"break_up:{answers.label}", work)
    return Rows(row_type=Breakdown, stages=(planned,), called=answers.label)


def judge_claims(it: Iteration, broken: Rows[Breakdown], judge: FactJudge) -> Rows[Claim]:
    """Commit the verdict on each statement."""
    config = it.run.config.critic
    judging = JudgingClaims(
        run=it.run,
        iteration=it.number,
        line=judge_line(it.run, it.run.models.feedback, config),
        attempts=config.attempts,
        templates=judge,
        broken=lambda chunk: it.chunk(broken, chunk),
    )
    work = it.work(JUDGE_CLAIMS, judging.params, broken)
    planned = run_judgements(judging, f"judge_claims:{broken.label}", work)
    return Rows(row_type=Claim, stages=(planned,), called=broken.label)


@dataclass(frozen=True, kw_only=True)
class BreakingUp(JudgedStage[AnswerPassage, Statements, Breakdown]):
    """A stage of breakdowns; `answers` returns the answers of a chunk when that chunk begins."""

    row_type = Breakdown
    templates: FactJudge
    answers: Callable[[int], Sequence[Candidate]]

    def _depends_on(self) -> Mapping[str, Json]:
        return {
            "template": self.templates.digest(STATEMENTS),
            "most": self.run.config.facts.most,
            **judge_params(self.run, self.judge, self.run.config.critic),
        }

    def _subjects(self, chunk: int) -> Iterable[AnswerPassage]:
        return chain.from_iterable(map(self._passages, self.answers(chunk)))

    def _pose(self, subject: AnswerPassage, attempt: int) -> Posed[Statements]:
        prompt, (name,) = self.run.prompts[subject.candidate.prompt_id], self._ids(subject)
        question = self.templates.ask_statements(prompt, subject.text, self.guard(name))
        seed = derive_seed(self.run.config.seed, "break up", name, attempt)
        return Posed(question, name, seed)

    def _ids(self, subject: AnswerPassage) -> list[str]:
        return [row_id("broken", [subject.candidate.candidate_id, subject.place, self.identity])]

    def _decide_without_judge(self, subject: AnswerPassage) -> list[Reading[Statements]] | None:
        return None if subject.status is None else [Reading(subject.status.value, NO_STATEMENTS)]

    def _rows(self, request: JudgeRequest[AnswerPassage, Statements]) -> list[Breakdown]:
        (reading,), (name,) = request.readings, self._ids(request.subject)
        candidate, place, text, _ = request.subject
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
            attempts=request.attempts,
            text=request.text,
        )
        return [breakdown]

    def _passages(self, candidate: Candidate) -> list[AnswerPassage]:
        prompt, found = self.run.prompts[candidate.prompt_id], list[str]()
        if prompt.task != FACTS:
            return []
        if prompt.reference is None or not prompt.reference.strip():
            status = Status.NO_REFERENCE
        elif candidate.finish_reason in NOT_WRITTEN:
            status = Status(candidate.finish_reason)
        else:
            # A non-empty passage has at least one statement, so the limit of statements also
            # limits passages.
            status, found = Status.SCORED, passages(candidate.text)[: self.run.config.facts.most]
        named = [AnswerPassage(candidate, n, text) for n, text in enumerate(found)]
        return named or [AnswerPassage(candidate, status=status)]


@dataclass(frozen=True, kw_only=True)
class JudgingClaims(JudgedStage[JudgedStatements, StatementSupport, Claim]):
    """A stage of claims by the critic, which judges several statements of an answer at once."""

    row_type = Claim
    templates: FactJudge
    broken: Callable[[int], Sequence[Breakdown]]

    def _depends_on(self) -> Mapping[str, Json]:
        config = self.run.config.facts
        return {
            "most": config.most,
            "together": config.together,
            "template": self.templates.digest(SUPPORT),
            **judge_params(self.run, self.judge, self.run.config.critic),
        }

    def _subjects(self, chunk: int) -> Iterable[JudgedStatements]:
        config = self.run.config.facts
        for statements in statements_of(self.broken(chunk), config.most):
            for beyond in (False, True):
                of = tuple(one for one in statements if one.beyond == beyond)
                size = config.together
                yield from (of[first : first + size] for first in range(0, len(of), size))

    def _pose(self, subject: JudgedStatements, attempt: int) -> Posed[StatementSupport]:
        prompt, name = self.run.prompts[subject[0].prompt_id], self._ids(subject)[0]
        texts = [statement.text for statement in subject]
        question = self.templates.ask_support(prompt, texts, self.guard(name))
        seed = derive_seed(self.run.config.seed, "judge claims", name, attempt)
        return Posed(question, name, seed)

    def _ids(self, subject: JudgedStatements) -> list[str]:
        return [row_id("claim", [s.candidate_id, s.place, self.identity]) for s in subject]

    def _decide_without_judge(
        self, subject: JudgedStatements
    ) -> list[Reading[StatementSupport]] | None:
        beyond = Reading(BEYOND, StatementSupport())
        return [beyond] * len(subject) if subject[0].beyond else None

    def _rows(self, request: JudgeRequest[JudgedStatements, StatementSupport]) -> Iterator[Claim]:
        named = zip(self._ids(request.subject), request.subject, request.readings, strict=True)
        for name, statement, reading in named:
            yield Claim(
                claim_id=name,
                candidate_id=statement.candidate_id,
                prompt_id=statement.prompt_id,
                iteration=self.iteration,
                judge=self.judge.identity,
                place=statement.place,
                statement=statement.text,
                verdict=reading.value.verdict,
                reason=reading.value.reason,
                status=reading.status,
                attempts=request.attempts,
                text=request.text,
            )


def statements_of(broken: Sequence[Breakdown], most: int) -> Iterator[list[JudgedStatement]]:
    """Yield the different statements of each answer, in the order of its passages."""
    by_answer = dict[str, list[Breakdown]]()
    for row in broken:
        by_answer.setdefault(row.candidate_id, []).append(row)
    for answer, rows in by_answer.items():
        texts = dict[str, str]()
        for row in sorted(rows, key=lambda one: one.place):
            for text in row.statements:
                texts.setdefault(" ".join(text.casefold().split()), text)
        yield [
            JudgedStatement(answer, rows[0].prompt_id, place, text, place >= most)
            for place, text in enumerate(texts.values())
        ]
