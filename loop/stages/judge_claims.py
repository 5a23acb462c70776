"""Judging the statements of answers: is each supported by the reference of its prompt?

The critic says so of the statements of a question, or a model of natural language inference of each
pair of reference and statement. A statement that repeats an earlier one of its answer is judged
once; those beyond `facts.most` are stored without a verdict.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ...critics.facts.fact_judge import SUPPORT, FactJudge
from ...critics.facts.fact_score import BEYOND
from ...critics.facts.support_verdicts import StatementSupport
from ...critics.judge import Reading
from ...critics.status import Status
from ...policies.engines.engine import ScoreRequest
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Breakdown, Claim, Message
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.lines import ScorerLine
from ..run.pump import Pump
from ..run.reporter import Advance
from ..run.run import Run, Verb, Work
from ..run.stage import Stage
from .judging import (
    JudgedStage,
    JudgeInquiry,
    Posed,
    commit_judgements,
    judge_line,
    judge_params,
)
from .retry_unscored import judged

JUDGE_CLAIMS = Verb("judge_claims")


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
        planned = judged(judging, label, it.work(JUDGE_CLAIMS, judging.params, broken))
    else:
        inferring = Inferring(run, it.number, run.models.nli_id, statements)
        planned = inferring.planned(label, it.work(JUDGE_CLAIMS, inferring.identity, broken))
    return Rows(row_type=Claim, stages=(planned,), called=broken.label)


@dataclass(frozen=True, kw_only=True)
class JudgingClaims(JudgedStage[JudgedStatements, StatementSupport, Claim]):
    """A stage of claims by the critic, who is asked about some statements of an answer at once."""

    row_type = Claim
    templates: FactJudge
    statements: StatementsOf

    def depends_on(self) -> Mapping[str, Json]:
        """Return the template, how the critic is asked, and how many statements are judged."""
        config = self.run.config.facts
        return {
            "most": config.most,
            "together": config.together,
            "template": self.templates.digest(SUPPORT),
            **judge_params(self.run, self.judge, self.run.config.critic),
        }

    def subjects(self, chunk: int) -> Iterable[JudgedStatements]:
        """Return the statements of each answer, as many together as are asked about at once."""
        size = self.run.config.facts.together
        by_answer = dict[tuple[str, bool], list[JudgedStatement]]()
        for statement in self.statements(chunk):
            key = (statement.candidate_id, statement.beyond)
            by_answer.setdefault(key, []).append(statement)
        for of in by_answer.values():
            yield from (tuple(of[first : first + size]) for first in range(0, len(of), size))

    def pose(self, subject: JudgedStatements, attempt: int) -> Posed[StatementSupport]:
        """Ask which of the statements the reference supports."""
        prompt, name = self.run.prompts[subject[0].prompt_id], self._id(subject[0])
        texts = [statement.text for statement in subject]
        question = self.templates.ask_support(prompt, texts, self.guard(name))
        seed = derive_seed(self.run.config.seed, "judge claims", name, attempt)
        return Posed(question, name, seed)

    def ids(self, subject: JudgedStatements) -> list[str]:
        """Return the ids of the claims."""
        return [self._id(statement) for statement in subject]

    def unasked(self, subject: JudgedStatements) -> list[Reading[StatementSupport]] | None:
        """Return that statements beyond the most are not judged."""
        beyond = Reading(BEYOND, StatementSupport())
        return [beyond] * len(subject) if subject[0].beyond else None

    def rows(self, asked: JudgeInquiry[JudgedStatements, StatementSupport]) -> Iterator[Claim]:
        """Return a claim for each statement."""
        for statement, reading in zip(asked.subject, asked.readings, strict=True):
            claim = claim_of(statement, self.identity, self.iteration, reading)
            yield replace(
                claim, judge=self.judge.identity, attempts=asked.attempts, text=asked.text
            )

    def _id(self, statement: JudgedStatement) -> str:
        return claim_id(statement, self.identity)


@dataclass(frozen=True)
class Inferring:
    """A stage of claims by the model of natural language inference whose id is `model`."""

    run: Run
    iteration: int
    model: str
    statements: StatementsOf

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """What a claim depends on besides its statement."""
        config = self.run.config.facts
        how = config.nli.model_dump(mode="json", exclude={"model", "devices"})
        return {"most": config.most, "nli": self.model, **how}

    def planned(self, label: str, work: Work) -> Planned:
        """Plan and pay the stage."""
        places = self.run.places.of_nli()
        return self.run.pay(self.iteration, label, work, self._pay, places=places)

    def _pay(self, stage: Stage) -> None:
        def commit(unit: Unit, said: Sequence[InferenceInquiry], cost: Advance) -> None:
            rows = [
                replace(
                    claim_of(one.statement, self.identity, self.iteration, one.reading),
                    judge=self.model,
                    attempts=one.attempts,
                )
                for one in said
            ]
            commit_judgements(stage, unit, Claim, rows, cost)

        Pump(
            run=self.run,
            line=ScorerLine(scorer=self.run.models.entailment()),
            work=lambda unit: [self._inquiry(one) for one in self.statements(unit.chunk)],
            commit=commit,
        ).pay(stage)

    def _inquiry(self, statement: JudgedStatement) -> "InferenceInquiry":
        return InferenceInquiry(
            claim_id=claim_id(statement, self.identity),
            statement=statement,
            reference=self.run.prompts[statement.prompt_id].reference or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceInquiry:
    """A statement, its reference, and how surely it follows: a margin, above 0 if it does."""

    claim_id: str
    statement: JudgedStatement
    reference: str
    margin: float | None = None
    attempts: int = 0

    @property
    def settled(self) -> bool:
        """Whether it was asked, or need not be."""
        return self.statement.beyond or self.attempts > 0

    @property
    def reading(self) -> Reading[StatementSupport]:
        """What the model says; it is not told the prompt, so it calls nothing irrelevant."""
        if self.statement.beyond:
            return Reading(BEYOND, StatementSupport())
        if self.margin is None:
            return Reading(Status.OVERLONG.value, StatementSupport())
        verdict = "supported" if self.margin > 0 else "not_supported"
        return Reading(SCORED, StatementSupport(verdict, f"margin of entailment {self.margin:.3f}"))

    def request(self) -> ScoreRequest:
        """Return the pair to compare: the premise, and what may follow from it."""
        messages = (
            Message(role="user", content=self.reference),
            Message(role="assistant", content=self.statement.text),
        )
        return ScoreRequest(request_id=self.claim_id, messages=messages)

    def heard(self, answer: float | None) -> "Sequence[InferenceInquiry]":
        """Return it with its margin."""
        return [replace(self, margin=answer, attempts=1)]


def claim_id(statement: JudgedStatement, identity: Mapping[str, Json]) -> str:
    """Return the id of what a judge of this identity says of a statement."""
    return row_id("claim", [statement.candidate_id, statement.place, identity])


def claim_of(
    statement: JudgedStatement,
    identity: Mapping[str, Json],
    iteration: int,
    reading: Reading[StatementSupport],
) -> Claim:
    """Return the row of a statement, without its judge and the reply."""
    return Claim(
        claim_id=claim_id(statement, identity),
        candidate_id=statement.candidate_id,
        prompt_id=statement.prompt_id,
        iteration=iteration,
        judge="",
        place=statement.place,
        statement=statement.text,
        verdict=reading.value.verdict,
        reason=reading.value.reason,
        status=reading.status,
        attempts=0,
        text="",
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
