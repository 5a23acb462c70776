"""The statements of answers to prompts of facts, and whether a reference supports each.

The critic lists the atomic statements of each passage. A prompt without a reference, or a candidate
without an answer, is not sent to the critic; its row has the reason. Then the critic gives a
verdict on each statement. One that repeats an earlier one of its answer is judged once; statements
beyond `facts.most` are stored without a verdict.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...critics.facts.fact_judge import (
    STATEMENTS,
    SUPPORT,
    FactJudge,
    Statements,
    StatementSupport,
)
from ...critics.facts.fact_score import BEYOND, passages
from ...critics.status import Status
from ...critics.verify import FACTS
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Breakdown, Candidate, Claim
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .judging import PENDING, JudgedStage, Posed, judge_client, judge_params

BREAK_UP, JUDGE_CLAIMS = Verb("break_up"), Verb("judge_claims")
NOT_WRITTEN = frozenset({"failed", "overlong", "truncated_thinking"})

Claims = tuple[Claim, ...]
"""Statements of an answer that are judged together."""


def break_up(it: Iteration, answers: Rows[Candidate], judge: FactJudge) -> Rows[Breakdown]:
    """Commit the statements of each passage of the answers to prompts of facts."""
    config = it.run.config.critic
    breaking = BreakingUp(
        run=it.run,
        iteration=it.number,
        client=judge_client(it.run, it.run.models.feedback, config),
        attempts=config.attempts,
        templates=judge,
        answers=lambda chunk: it.chunk(answers, chunk),
    )
    work = it.work(BREAK_UP, breaking.params, answers)
    planned = breaking.plan(f"break_up:{answers.label}", work)
    return Rows(row_type=Breakdown, stages=(planned,), called=answers.label)


def judge_claims(it: Iteration, broken: Rows[Breakdown], judge: FactJudge) -> Rows[Claim]:
    """Commit the verdict on each statement."""
    config = it.run.config.critic
    judging = JudgingClaims(
        run=it.run,
        iteration=it.number,
        client=judge_client(it.run, it.run.models.feedback, config),
        attempts=config.attempts,
        templates=judge,
        broken=lambda chunk: it.chunk(broken, chunk),
    )
    work = it.work(JUDGE_CLAIMS, judging.params, broken)
    planned = judging.plan(f"judge_claims:{broken.label}", work)
    return Rows(row_type=Claim, stages=(planned,), called=broken.label)


@dataclass(frozen=True, kw_only=True)
class BreakingUp(JudgedStage[Breakdown, Statements, Breakdown]):
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

    def _subjects(self, chunk: int) -> Iterator[tuple[Breakdown, list[Breakdown]]]:
        for candidate in self.answers(chunk):
            if self.run.prompts[candidate.prompt_id].task == FACTS:
                yield from ((row, [row]) for row in self._passages(candidate))

    def _pose(self, subject: Breakdown, attempt: int) -> Posed[Statements]:
        prompt, name = self.run.prompts[subject.prompt_id], subject.breakdown_id
        question = self.templates.ask_statements(prompt, subject.passage, self.guard(name))
        seed = derive_seed(self.run.config.seed, "break up", name, attempt)
        return Posed(question, name, seed)

    def _fill(self, row: Breakdown, value: Statements, place: int) -> Breakdown:
        del place
        return replace(row, statements=value)

    def _passages(self, candidate: Candidate) -> list[Breakdown]:
        """Return the passages of an answer; if there are none to judge, one with the reason."""
        prompt = self.run.prompts[candidate.prompt_id]
        if prompt.reference is None or not prompt.reference.strip():
            return [self._row(candidate, 0, "", Status.NO_REFERENCE)]
        if candidate.finish_reason in NOT_WRITTEN:
            return [self._row(candidate, 0, "", Status(candidate.finish_reason))]
        # A non-empty passage has at least one statement, so the limit of statements also limits
        # passages.
        found = passages(candidate.text)[: self.run.config.facts.most]
        rows = [self._row(candidate, n, text, PENDING) for n, text in enumerate(found)]
        return rows or [self._row(candidate, 0, "", Status.SCORED)]

    def _row(self, candidate: Candidate, place: int, text: str, status: str) -> Breakdown:
        return Breakdown(
            breakdown_id=row_id("broken", [candidate.candidate_id, place, self.identity]),
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            judge=self.judge.identity,
            place=place,
            passage=text,
            statements=(),
            status=str(status),
            attempts=0,
            text="",
        )


@dataclass(frozen=True, kw_only=True)
class JudgingClaims(JudgedStage[Claims, StatementSupport, Claim]):
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

    def _subjects(self, chunk: int) -> Iterator[tuple[Claims, Claims]]:
        """Yield the different statements of each answer, in the order of its passages."""
        config = self.run.config.facts
        by_answer = dict[str, list[Breakdown]]()
        for row in self.broken(chunk):
            by_answer.setdefault(row.candidate_id, []).append(row)
        for rows in by_answer.values():
            texts = dict[str, str]()
            for row in sorted(rows, key=lambda one: one.place):
                for text in row.statements:
                    texts.setdefault(" ".join(text.casefold().split()), text)
            claims = [self._row(rows[0], *placed) for placed in enumerate(texts.values())]
            for part in (claims[: config.most], claims[config.most :]):
                for first in range(0, len(part), config.together):
                    together = tuple(part[first : first + config.together])
                    yield together, together

    def _pose(self, subject: Claims, attempt: int) -> Posed[StatementSupport]:
        prompt, name = self.run.prompts[subject[0].prompt_id], subject[0].claim_id
        texts = [claim.statement for claim in subject]
        question = self.templates.ask_support(prompt, texts, self.guard(name))
        seed = derive_seed(self.run.config.seed, "judge claims", name, attempt)
        return Posed(question, name, seed)

    def _row(self, broken: Breakdown, place: int, text: str) -> Claim:
        return Claim(
            claim_id=row_id("claim", [broken.candidate_id, place, self.identity]),
            candidate_id=broken.candidate_id,
            prompt_id=broken.prompt_id,
            iteration=self.iteration,
            judge=self.judge.identity,
            place=place,
            statement=text,
            verdict=None,
            reason="",
            status=PENDING if place < self.run.config.facts.most else BEYOND,
            attempts=0,
            text="",
        )
