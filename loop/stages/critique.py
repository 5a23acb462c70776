"""Critiquing candidates: asking the feedback model, reading its replies, asking again, verifying.

A reply that can not be read is never a number: the candidate is asked about again under a new
derived seed, at most `attempts` times in all, and then stored as unscored with the reason and the
raw reply.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...critics.judge import Question, Reading, Status, unread
from ...critics.rating_dictionary import AspectRatings
from ...critics.verify import Verdict, VerifierCritic
from ...policies.engines.engine import Completion, Request
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, AspectRating, Candidate, Critique, storable
from ..data.judged_candidates import VERIFIED, VERIFIER
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.reporter import Advance
from ..run.run import Run, Stage, Verb
from .ask_judge import ask_judge

CRITIQUE = Verb("critique")


def critique(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """f(x, y): commit one critique a candidate, with the reference where the task has one."""
    judging = Judging(run=it.run, iteration=it.number)
    owed = it.work(CRITIQUE, judging.identity, candidates)
    with it.run.stage(it.number, f"critique:{candidates.label}", owed, judge=True) as stage:
        judging.pay(stage, lambda unit: it.chunk(candidates, unit.chunk))
    return Rows(row_type=Critique, stages=(stage.planned,))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A candidate under judgement, with the reply to its latest question."""

    seed: int
    candidate: Candidate
    question: Question[AspectRatings]
    critique_id: str
    most: int
    attempts: int = 0
    text: str = ""
    reading: Reading[AspectRatings] | None = None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to ask: it is rated, or never will be."""
        if self.candidate.finish_reason == "failed" or self.attempts >= self.most:
            return True
        return self.reading is not None and self.reading.status == SCORED

    def request(self) -> Request:
        """Return the next request; each attempt has its own seed."""
        return Request(
            request_id=self.critique_id,
            messages=self.question.messages,
            seed=derive_seed(self.seed, "critique", self.critique_id, self.attempts),
        )

    def heard(self, answer: Completion) -> "Sequence[_Asked]":
        """Return it after a reply."""
        text = storable(answer.text)
        (reading,) = self.question.read(text, answer.finish_reason)
        return [replace(self, attempts=self.attempts + 1, text=text, reading=reading)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """A stage of critiques: one a candidate, by the feedback model, the verifier, or both."""

    run: Run
    iteration: int

    @property
    def identity(self) -> Json:
        """What a critique depends on besides its candidate."""
        config = self.run.config.critic
        judge: dict[str, Json] = {"kind": config.kind}
        if config.kind != "feedback":
            judge["verifier"] = self._verifier.digest
        if config.kind != "verifier":
            judge |= {
                "critic": self.run.critic.digest,
                "served": self.run.models.feedback.params,
                "sampling": config.sampling.model_dump(mode="json"),
                "attempts": config.attempts,
                "retry_temperature": config.retry_temperature,
            }
        return judge

    def pay(self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]) -> None:
        """Critique what the stage owes; `work` gives a unit's candidates when it is its turn."""
        if self.run.config.critic.kind == "verifier":
            self._verify(stage, work)
        else:
            self._ask(stage, work)

    def _verify(self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]) -> None:
        for unit in stage.owed:
            self.run.stop.admit()
            candidates = work(unit)
            verdicts = self._verdicts(candidates)
            rows = [self._verified_row(c, v) for c, v in zip(candidates, verdicts, strict=True)]
            _commit(stage, unit, rows, Advance())

    def _ask(self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]) -> None:
        config = self.run.config.critic

        def commit(unit: Unit, asked: Sequence[_Asked], cost: Advance) -> None:
            _commit(stage, unit, self._critiques(asked), cost)

        ask_judge(
            self.run,
            stage,
            self.run.models.feedback,
            config,
            work=lambda unit: [self._question(candidate) for candidate in work(unit)],
            commit=commit,
        )

    @property
    def _verifier(self) -> VerifierCritic:
        aspects = self.run.config.critic.task_aspects
        return VerifierCritic(task_aspects=aspects, own=self.run.verifier.own)

    def _critique_id(self, candidate: Candidate) -> str:
        return row_id("crit", [candidate.candidate_id, self.identity])

    def _verdicts(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        prompts = self.run.prompts
        return self.run.verifier.verify([(prompts[c.prompt_id], c.text) for c in candidates])

    def _question(self, candidate: Candidate) -> _Asked:
        prompt = self.run.prompts[candidate.prompt_id]
        return _Asked(
            seed=self.run.config.seed,
            candidate=candidate,
            question=self.run.critic.ask(prompt, candidate.text),
            critique_id=self._critique_id(candidate),
            most=self.run.config.critic.attempts,
        )

    def _critiques(self, asked: Sequence[_Asked]) -> list[Critique]:
        if self.run.config.critic.kind != "both":
            return [self._row(a, ()) for a in asked]
        verdicts = self._verdicts([a.candidate for a in asked])
        return [self._row(a, _verified_aspect(v)) for a, v in zip(asked, verdicts, strict=True)]

    def _row(self, asked: _Asked, verified: tuple[AspectRating, ...]) -> Critique:
        reading = asked.reading
        if reading is None:
            (reading,) = unread(Status.FAILED, asked.question.expected)
        return Critique(
            critique_id=asked.critique_id,
            candidate_id=asked.candidate.candidate_id,
            prompt_id=asked.candidate.prompt_id,
            iteration=self.iteration,
            critic=self.run.models.feedback.identity,
            aspects=reading.value + verified,
            text=asked.text,
            reference_used=asked.question.reference_used,
            status=reading.status,
            attempts=asked.attempts,
        )

    def _verified_row(self, candidate: Candidate, verdict: Verdict) -> Critique:
        prompt = self.run.prompts[candidate.prompt_id]
        reading = self._verifier.read(prompt, verdict)
        return Critique(
            critique_id=self._critique_id(candidate),
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            critic=VERIFIER,
            aspects=reading.value,
            text=self._verifier.text(prompt, verdict),
            reference_used=prompt.reference is not None,
            status=reading.status,
            attempts=1,
        )


def _commit(stage: Stage, unit: Unit, critiques: Sequence[Critique], cost: Advance) -> None:
    unread = sum(critique.status != SCORED for critique in critiques)
    stage.commit(unit, {Critique: critiques}, replace(cost, rows=len(critiques), unscored=unread))


def _verified_aspect(verdict: Verdict) -> tuple[AspectRating, ...]:
    """The verifier's rating beside the feedback model's; none where nothing can be verified."""
    if verdict.rating is None:
        return ()
    comment = verdict.reason if verdict.remark is None else verdict.remark
    return (AspectRating(name=VERIFIED, rating=verdict.rating, comment=comment),)
