"""Claims by a model of natural language inference: does a reference entail a statement?

The model scores each pair of reference and statement. It is deterministic, so a pair is never
scored twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ...critics.facts.fact_judge import StatementSupport
from ...critics.facts.fact_score import BEYOND
from ...critics.judge import Reading
from ...critics.status import Status
from ...policies.engines.engine import ScoreRequest
from ...stores.journal_reader import Unit
from ...stores.keys import Json, row_id
from ...stores.records import SCORED, Claim, Message
from ..run.engine_client import ScorerClient
from ..run.handles import Planned
from ..run.reporter import UnitStats
from ..run.request_dispatcher import RequestDispatcher
from ..run.run import Run, Work
from ..run.stage import Stage
from .judging import commit_judgements


class JudgedStatement(NamedTuple):
    """A statement of an answer, by its place there; `beyond` the most that are judged or not."""

    candidate_id: str
    prompt_id: str
    place: int
    text: str
    beyond: bool


StatementsOf = Callable[[int], Sequence[JudgedStatement]]
"""The statements of a chunk, when it is its turn."""


@dataclass(frozen=True)
class Inferring:
    """A stage of claims by the model of natural language inference whose id is `model`."""

    run: Run
    iteration: int
    model: str
    statements: StatementsOf

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """Every input of a claim except its statement."""
        config = self.run.config.facts
        how = config.nli.model_dump(mode="json", exclude={"model", "devices"})
        return {"most": config.most, "nli": self.model, **how}

    def planned(self, label: str, work: Work) -> Planned:
        """Plan and pay the stage."""
        places = self.run.places.of_nli()
        return self.run.run_stage(self.iteration, label, work, self._pay, places=places)

    def _pay(self, stage: Stage) -> None:
        def commit(unit: Unit, said: Sequence[InferenceInquiry], cost: UnitStats) -> None:
            rows = [
                replace(
                    claim_of(one.statement, self.identity, self.iteration, one.reading),
                    judge=self.model,
                    attempts=one.attempts,
                )
                for one in said
            ]
            commit_judgements(stage, unit, Claim, rows, cost)

        RequestDispatcher(
            run=self.run,
            line=ScorerClient(scorer=self.run.models.entailment()),
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
        """Whether the statement was scored or is beyond the limit."""
        return self.statement.beyond or self.attempts > 0

    @property
    def reading(self) -> Reading[StatementSupport]:
        """The model's verdict; it does not see the prompt, so it calls nothing irrelevant."""
        if self.statement.beyond:
            return Reading(BEYOND, StatementSupport())
        if self.margin is None:
            return Reading(Status.OVERLONG.value, StatementSupport())
        verdict = "supported" if self.margin > 0 else "not_supported"
        return Reading(SCORED, StatementSupport(verdict, f"margin of entailment {self.margin:.3f}"))

    def request(self) -> ScoreRequest:
        """Return the pair to score: premise and hypothesis."""
        messages = (
            Message(role="user", content=self.reference),
            Message(role="assistant", content=self.statement.text),
        )
        return ScoreRequest(request_id=self.claim_id, messages=messages)

    def heard(self, answer: float | None) -> "Sequence[InferenceInquiry]":
        """Return it with its margin."""
        return [replace(self, margin=answer, attempts=1)]


def claim_id(statement: JudgedStatement, identity: Mapping[str, Json]) -> str:
    """Return the id of the claim of a judge with this identity about a statement."""
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
