"""Judging the statements of answers: is each supported by the reference of its prompt?

The critic says so of the statements of a question, or a model of natural language inference of each
pair of reference and statement. A statement that repeats an earlier one of its answer is judged
once; those beyond `facts.most` are stored without a verdict.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.lines import ScorerLine
from ..run.pump import Pump
from ..run.reporter import Advance
from ..run.run import Run, Verb
from ..run.stage import Stage
from .ask_judge import JudgedStage, JudgeInquiry, Posed, commit_judgements, judge_params
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
StatementInquiry = JudgeInquiry[JudgedStatements, StatementSupport]


def judge_claims(it: Iteration, broken: Rows[Breakdown], judge: FactJudge) -> Rows[Claim]:
    """Commit the verdict on each statement."""
    judging = JudgingClaims(
        run=it.run,
        iteration=it.number,
        judge=judge,
        broken=lambda chunk: it.chunk(broken, chunk),
    )
    owed = it.work(JUDGE_CLAIMS, judging.params, broken)
    label = f"judge_claims:{broken.label}"
    if it.run.models.nli_id is None:
        planned = judged(it.run, it.number, label, owed, judging.stage)
    else:
        places = it.run.places.of_nli()
        planned = it.run.pay(it.number, label, owed, judging.infer, places=places)
    return Rows(row_type=Claim, stages=(planned,), called=broken.label)


@dataclass(frozen=True, kw_only=True)
class JudgingClaims:
    """A stage of claims; `broken` gives the breakdowns of a chunk, when it is its turn."""

    run: Run
    iteration: int
    judge: FactJudge
    broken: Callable[[int], Sequence[Breakdown]]

    @property
    def stage(self) -> JudgedStage[JudgedStatements, StatementSupport, Claim]:
        """How the critic is asked about the statements of each answer."""
        return JudgedStage(
            run=self.run,
            judge=self.run.models.feedback,
            settings=self.run.config.critic,
            row_type=Claim,
            subjects=lambda chunk: self._groups(self._statements(chunk)),
            pose=self._pose,
            ids=lambda group: [self._id(one) for one in group],
            rows=self._rows,
            unasked=lambda group: (
                [Reading(BEYOND, StatementSupport())] * len(group) if group[0].beyond else None
            ),
        )

    @property
    def params(self) -> Json:
        """What the keys of the stage hold: all that its rows depend on besides the statements."""
        by_critic = self.run.models.nli_id is None
        replies = {"attempts": self.run.config.critic.attempts} if by_critic else {}
        return {**self.identity, **replies}

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """What a claim depends on besides its statement and the number of replies."""
        config = self.run.config.facts
        if self.run.models.nli_id is not None:
            how = config.nli.model_dump(mode="json", exclude={"model", "devices"})
            return {"most": config.most, "nli": self.run.models.nli_id, **how}
        return {
            "most": config.most,
            "together": config.together,
            "template": self.judge.digest(SUPPORT),
            **judge_params(self.run, self.run.models.feedback, self.run.config.critic),
        }

    def infer(self, stage: Stage) -> None:
        """Let the model of natural language inference judge what the stage owes."""

        def commit(unit: Unit, said: Sequence[InferenceInquiry], cost: Advance) -> None:
            rows = [self._claim(one.statement, one.reading, one.attempts, "") for one in said]
            commit_judgements(stage, unit, Claim, rows, cost)

        Pump(
            run=self.run,
            line=ScorerLine(scorer=self.run.models.entailment()),
            work=lambda unit: [self._inferred(one) for one in self._statements(unit.chunk)],
            commit=commit,
        ).pay(stage)

    def _statements(self, chunk: int) -> list[JudgedStatement]:
        return list(statements_of(self.broken(chunk), self.run.config.facts.most))

    def _groups(self, statements: Sequence[JudgedStatement]) -> Iterator[JudgedStatements]:
        """Group the statements of each answer, as many as are asked about at once."""
        size = self.run.config.facts.together
        by_answer = dict[str, list[JudgedStatement]]()
        for statement in statements:
            by_answer.setdefault(statement.candidate_id, []).append(statement)
        for of in by_answer.values():
            for beyond in (False, True):
                yield from _groups([one for one in of if one.beyond == beyond], size)

    def _pose(self, group: JudgedStatements, number: int) -> Posed[StatementSupport]:
        prompt, name = self.run.prompts[group[0].prompt_id], self._id(group[0])
        seed = derive_seed(self.run.config.seed, "judge claims", name, number)
        texts = [statement.text for statement in group]
        key = self.run.guard(name, self.run.models.feedback)
        return Posed(self.judge.ask_support(prompt, texts, key), name, seed)

    def _inferred(self, statement: JudgedStatement) -> "InferenceInquiry":
        reference = self.run.prompts[statement.prompt_id].reference or ""
        return InferenceInquiry(
            claim_id=self._id(statement), statement=statement, reference=reference
        )

    def _id(self, statement: JudgedStatement) -> str:
        return row_id("claim", [statement.candidate_id, statement.place, self.identity])

    def _rows(self, asked: StatementInquiry) -> list[Claim]:
        readings = asked.readings or [Reading(Status.FAILED.value, StatementSupport())] * len(
            asked.subject
        )
        pairs = zip(asked.subject, readings, strict=True)
        return [self._claim(one, reading, asked.attempts, asked.text) for one, reading in pairs]

    def _claim(
        self,
        statement: JudgedStatement,
        reading: Reading[StatementSupport],
        attempts: int,
        text: str,
    ) -> Claim:
        return Claim(
            claim_id=self._id(statement),
            candidate_id=statement.candidate_id,
            prompt_id=statement.prompt_id,
            iteration=self.iteration,
            judge=self.run.models.nli_id or self.run.models.feedback.identity,
            place=statement.place,
            statement=statement.text,
            verdict=reading.value.verdict,
            reason=reading.value.reason,
            status=reading.status,
            attempts=attempts,
            text=text,
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
        """What the model says: it knows no irrelevant statements, as nobody told it the prompt."""
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


def _groups(statements: Sequence[JudgedStatement], size: int) -> Iterator[JudgedStatements]:
    for first in range(0, len(statements), size):
        yield tuple(statements[first : first + size])
