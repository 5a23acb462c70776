"""The statements of answers to prompts of facts, and whether a reference supports each.

The critic lists the atomic statements of each passage. A prompt without a reference, or a candidate
without an answer, is not sent to the critic; its row has the reason. Then the critic, or a model of
natural language inference, gives a verdict on each statement. One that repeats an earlier one of
its answer is judged once; statements beyond `facts.most` are stored without a verdict.
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
from ...policies.engines.engine import ScoreRequest
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Breakdown, Candidate, Claim, Message
from ..run.engine_client import ScorerClient
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.reporter import UnitStats
from ..run.request_dispatcher import RequestDispatcher
from ..run.run import Verb
from ..run.stage import Stage
from .judging import (
    JudgedStage,
    JudgeRequest,
    Posed,
    commit_judgements,
    judge_line,
    judge_params,
)
from .retry_unscored import pay_judgements
from .single_request import SingleRequest

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
StatementsOf = Callable[[int], Sequence[JudgedStatement]]
"""The statements of a chunk, when it is its turn."""
Inference = SingleRequest[JudgedStatement, ScoreRequest, float]
"""A statement, and how surely its reference entails it: a margin, above 0 if it does."""


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
    planned = pay_judgements(breaking, f"break_up:{answers.label}", work)
    return Rows(row_type=Breakdown, stages=(planned,), called=answers.label)


def judge_claims(it: Iteration, broken: Rows[Breakdown], judge: FactJudge) -> Rows[Claim]:
    """Commit the verdict on each statement."""
    run, label, most = it.run, f"judge_claims:{broken.label}", it.run.config.facts.most

    def statements(chunk: int) -> list[JudgedStatement]:
        return list(statements_of(it.chunk(broken, chunk), most))

    if run.models.nli_id is None:
        config = run.config.critic
        judging = JudgingClaims(
            run=run,
            iteration=it.number,
            line=judge_line(run, run.models.feedback, config),
            attempts=config.attempts,
            templates=judge,
            statements=statements,
        )
        planned = pay_judgements(judging, label, it.work(JUDGE_CLAIMS, judging.params, broken))
    else:
        how = run.config.facts.nli.model_dump(mode="json", exclude={"model", "devices"})
        identity: Mapping[str, Json] = {"most": most, "nli": run.models.nli_id, **how}
        planned = run.run_stage(
            it.number,
            label,
            it.work(JUDGE_CLAIMS, identity, broken),
            lambda stage: _infer(it, stage, statements, identity),
            places=run.places.of_nli(),
        )
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

    def _unasked(self, subject: AnswerPassage) -> list[Reading[Statements]] | None:
        return None if subject.status is None else [Reading(subject.status.value, NO_STATEMENTS)]

    def _rows(self, asked: JudgeRequest[AnswerPassage, Statements]) -> list[Breakdown]:
        (reading,), (name,) = asked.readings, self._ids(asked.subject)
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


@dataclass(frozen=True, kw_only=True)
class JudgingClaims(JudgedStage[JudgedStatements, StatementSupport, Claim]):
    """A stage of claims by the critic, which judges several statements of an answer at once."""

    row_type = Claim
    templates: FactJudge
    statements: StatementsOf

    def _depends_on(self) -> Mapping[str, Json]:
        config = self.run.config.facts
        return {
            "most": config.most,
            "together": config.together,
            "template": self.templates.digest(SUPPORT),
            **judge_params(self.run, self.judge, self.run.config.critic),
        }

    def _subjects(self, chunk: int) -> Iterable[JudgedStatements]:
        size = self.run.config.facts.together
        by_answer = dict[tuple[str, bool], list[JudgedStatement]]()
        for statement in self.statements(chunk):
            key = (statement.candidate_id, statement.beyond)
            by_answer.setdefault(key, []).append(statement)
        for of in by_answer.values():
            yield from (tuple(of[first : first + size]) for first in range(0, len(of), size))

    def _pose(self, subject: JudgedStatements, attempt: int) -> Posed[StatementSupport]:
        prompt, name = self.run.prompts[subject[0].prompt_id], self._ids(subject)[0]
        texts = [statement.text for statement in subject]
        question = self.templates.ask_support(prompt, texts, self.guard(name))
        seed = derive_seed(self.run.config.seed, "judge claims", name, attempt)
        return Posed(question, name, seed)

    def _ids(self, subject: JudgedStatements) -> list[str]:
        return [_claim_id(statement, self.identity) for statement in subject]

    def _unasked(self, subject: JudgedStatements) -> list[Reading[StatementSupport]] | None:
        beyond = Reading(BEYOND, StatementSupport())
        return [beyond] * len(subject) if subject[0].beyond else None

    def _rows(self, asked: JudgeRequest[JudgedStatements, StatementSupport]) -> Iterator[Claim]:
        by = (self.identity, self.iteration, self.judge.identity)
        for statement, reading in zip(asked.subject, asked.readings, strict=True):
            yield _claim(statement, reading, by, attempts=asked.attempts, text=asked.text)


def _infer(
    it: Iteration, stage: Stage, statements: StatementsOf, identity: Mapping[str, Json]
) -> None:
    """Have the model of natural language inference score pairs of reference and statement."""
    by = (identity, it.number, str(it.run.models.nli_id))

    def asked(statement: JudgedStatement) -> Inference:
        premise = it.run.prompts[statement.prompt_id].reference or ""
        messages = (
            Message(role="user", content=premise),
            Message(role="assistant", content=statement.text),
        )
        request = ScoreRequest(request_id=_claim_id(statement, identity), messages=messages)
        return SingleRequest(subject=statement, sent=None if statement.beyond else request)

    def commit(unit: Unit, said: Sequence[Inference], cost: UnitStats) -> None:
        rows = [
            _claim(one.subject, _inferred_support(one), by, attempts=one.attempts) for one in said
        ]
        commit_judgements(stage, unit, Claim, rows, cost)

    RequestDispatcher(
        run=it.run,
        line=ScorerClient(scorer=it.run.models.entailment()),
        work=lambda unit: [asked(statement) for statement in statements(unit.chunk)],
        commit=commit,
    ).pay(stage)


def _inferred_support(one: Inference) -> Reading[StatementSupport]:
    """Return the model's verdict; it does not see the prompt, so it calls nothing irrelevant."""
    if one.subject.beyond:
        return Reading(BEYOND, StatementSupport())
    if one.answer is None:
        return Reading(Status.OVERLONG.value, StatementSupport())
    verdict = "supported" if one.answer > 0 else "not_supported"
    return Reading(SCORED, StatementSupport(verdict, f"margin of entailment {one.answer:.3f}"))


def _claim_id(statement: JudgedStatement, identity: Mapping[str, Json]) -> str:
    return row_id("claim", [statement.candidate_id, statement.place, identity])


def _claim(
    statement: JudgedStatement,
    reading: Reading[StatementSupport],
    by: tuple[Mapping[str, Json], int, str],
    *,
    attempts: int,
    text: str = "",
) -> Claim:
    """Return the row of a statement; `by` is the stage's identity, iteration and judge."""
    identity, iteration, judge = by
    return Claim(
        claim_id=_claim_id(statement, identity),
        candidate_id=statement.candidate_id,
        prompt_id=statement.prompt_id,
        iteration=iteration,
        judge=judge,
        place=statement.place,
        statement=statement.text,
        verdict=reading.value.verdict,
        reason=reading.value.reason,
        status=reading.status,
        attempts=attempts,
        text=text,
    )


def statements_of(broken: Sequence[Breakdown], most: int) -> Iterator[JudgedStatement]:
    """Yield the different statements of each answer, in the order of its passages."""
    by_answer = dict[str, list[Breakdown]]()
    for row in broken:
        by_answer.setdefault(row.candidate_id, []).append(row)
    for rows in by_answer.values():
        told = dict[str, str]()
        for row in sorted(rows, key=lambda one: one.place):
            for text in row.statements:
                told.setdefault(" ".join(text.casefold().split()), text)
        for place, text in enumerate(told.values()):
            yield JudgedStatement(
                rows[0].candidate_id, rows[0].prompt_id, place, text, place >= most
            )
