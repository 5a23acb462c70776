"""Critiquing candidates: asking the feedback model, reading its replies, asking again, verifying.

A reply that can not be read is never a number: the candidate is asked about again under a new
derived seed, at most `attempts` times in all, and then stored as unscored with the reason and the
raw reply.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..critics.feedback import Question
from ..critics.reply import Reading, Status, unscored
from ..critics.verify import Verdict, VerifierCritic
from ..policies.engine import Batch, Completion, Request
from ..stores.journal_reader import Cost, Unit
from ..stores.keys import Json, derive_seed, row_id
from ..stores.records import SCORED, AspectRating, Candidate, Critique, storable
from .admission import Admission
from .budget import upper_bound
from .reporter import Advance
from .run import Run, Stage
from .sampling import engine_sampling, record_failures, spent

VERIFIER = "verifier"
VERIFIED = "Verified"
"""The aspect that the verifier rates beside those of the feedback model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A candidate under judgement, with the reply to its latest question."""

    candidate: Candidate
    question: Question
    critique_id: str
    attempts: int = 0
    text: str = ""
    reading: Reading | None = None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to ask: it is rated, or it was never drawn."""
        if self.candidate.finish_reason == "failed":
            return True
        return self.reading is not None and self.reading.status == SCORED


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
        if not stage.owed:
            return
        judged = self._verified(stage, work) if self._by_verifier_only else self._asked(stage, work)
        for unit, critiques, cost in judged:
            unread = sum(critique.status != SCORED for critique in critiques)
            advance = replace(cost, rows=len(critiques), unscored=unread)
            stage.commit(unit, {Critique: critiques}, advance)

    @property
    def _by_verifier_only(self) -> bool:
        return self.run.config.critic.kind == "verifier"

    @property
    def _verifier(self) -> VerifierCritic:
        return VerifierCritic(task_aspects=self.run.config.critic.task_aspects)

    def _critique_id(self, candidate: Candidate) -> str:
        return row_id("crit", [candidate.candidate_id, self.identity])

    def _verified(
        self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]
    ) -> Iterator[tuple[Unit, list[Critique], Advance]]:
        for unit in stage.owed:
            self.run.stop.admit()
            candidates = work(unit)
            verdicts = self._verdicts(candidates)
            rows = [self._verified_row(c, v) for c, v in zip(candidates, verdicts, strict=True)]
            yield unit, rows, Advance()

    def _verdicts(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        prompts = self.run.prompts
        return self.run.verifier.verify([(prompts[c.prompt_id], c.text) for c in candidates])

    def _asked(
        self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]
    ) -> Iterator[tuple[Unit, list[Critique], Advance]]:
        """Ask about every unit; yield each as soon as no candidate of it is to be asked again."""
        config = self.run.config.critic
        units = {unit.key: unit for unit in stage.owed}
        state: dict[str, list[_Asked]] = {}
        costs = dict.fromkeys(units, Advance())
        for attempt in range(config.attempts):
            temperature = None if attempt == 0 else config.retry_temperature
            sampling = engine_sampling(config.sampling, temperature=temperature)
            batches = (
                self._first(stage, work, state) if attempt == 0 else self._again(state, attempt)
            )
            engine = self.run.engine(self.run.models.feedback)
            for result in engine.generate(batches, sampling):
                asked = self._updated(state[result.key], result.completions)
                costs[result.key] += _cost(result.completions, attempt)
                record_failures(self.run, result.completions)
                if attempt + 1 == config.attempts or all(a.settled for a in asked):
                    del state[result.key]
                    yield units[result.key], self._critiques(asked), costs[result.key]
                else:
                    state[result.key] = asked
                    self.run.budget.park(result.key)
            if not state or self.run.stop.requested:
                return

    def _first(
        self,
        stage: Stage,
        work: Callable[[Unit], Sequence[Candidate]],
        state: dict[str, list[_Asked]],
    ) -> Admission[Batch]:
        """Ask about a unit at a time: only what is in flight, or is unread, is held in memory."""
        config = self.run.config.critic

        def prepare(unit: Unit) -> Batch | None:
            asked = [self._question(candidate) for candidate in work(unit)]
            if all(a.settled for a in asked):
                stage.commit(unit, {Critique: self._critiques(asked)}, Advance(rows=len(asked)))
                return None
            state[unit.key] = asked
            return self._batch(unit.key, asked, 0)

        def cost(batch: Batch) -> Cost:
            return upper_bound(
                self.run.config.prices,
                batch.requests,
                config.sampling.max_tokens,
                judge=True,
                times=config.attempts,
            )

        return self.run.admission(stage, prepare, cost)

    def _again(self, state: Mapping[str, Sequence[_Asked]], attempt: int) -> Iterator[Batch]:
        """Ask again what has no answer yet: admitted, and paid for, with the first attempt."""
        for key, asked in list(state.items()):
            if self.run.stop.requested:
                return
            # What was prepared and then not admitted was never asked: its turn comes another time.
            if all(a.settled or a.attempts == attempt for a in asked):
                yield self._batch(key, asked, attempt)

    def _question(self, candidate: Candidate) -> _Asked:
        prompt = self.run.prompts[candidate.prompt_id]
        return _Asked(
            candidate=candidate,
            question=self.run.critic.ask(prompt, candidate.text),
            critique_id=self._critique_id(candidate),
        )

    def _batch(self, key: str, asked: Sequence[_Asked], attempt: int) -> Batch:
        """Return the questions that have no answer yet; each attempt has its own seed."""
        seed = self.run.config.seed
        return Batch(
            key=key,
            requests=tuple(
                Request(
                    request_id=a.critique_id,
                    messages=a.question.messages,
                    seed=derive_seed(seed, "critique", a.critique_id, attempt),
                )
                for a in asked
                if not a.settled
            ),
        )

    def _updated(self, asked: Sequence[_Asked], completions: Sequence[Completion]) -> list[_Asked]:
        replies = {completion.request_id: completion for completion in completions}
        return [
            self._heard(a, replies[a.critique_id]) if a.critique_id in replies else a for a in asked
        ]

    def _heard(self, asked: _Asked, reply: Completion) -> _Asked:
        text = storable(reply.text)
        reading = self.run.critic.read(asked.question, text, reply.finish_reason)
        return replace(asked, attempts=asked.attempts + 1, text=text, reading=reading)

    def _critiques(self, asked: Sequence[_Asked]) -> list[Critique]:
        if self.run.config.critic.kind != "both":
            return [self._row(a, ()) for a in asked]
        verdicts = self._verdicts([a.candidate for a in asked])
        return [self._row(a, _verified_aspect(v)) for a, v in zip(asked, verdicts, strict=True)]

    def _row(self, asked: _Asked, verified: tuple[AspectRating, ...]) -> Critique:
        reading = asked.reading
        if reading is None:
            reading = unscored(Status.FAILED, asked.question.expected)
        return Critique(
            critique_id=asked.critique_id,
            candidate_id=asked.candidate.candidate_id,
            prompt_id=asked.candidate.prompt_id,
            iteration=self.iteration,
            critic=self.run.models.feedback.identity,
            aspects=reading.aspects + verified,
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
            aspects=reading.aspects,
            text=self._verifier.text(prompt, verdict),
            reference_used=prompt.reference is not None,
            status=reading.status,
            attempts=1,
        )


def _cost(completions: Sequence[Completion], attempt: int) -> Advance:
    """Return what replies cost; every attempt after the first is a retry."""
    cost = spent(completions, rows=0)
    return replace(cost, retries=cost.calls if attempt else 0)


def _verified_aspect(verdict: Verdict) -> tuple[AspectRating, ...]:
    """The verifier's rating beside the feedback model's; none where nothing can be verified."""
    if verdict.rating is None:
        return ()
    return (AspectRating(name=VERIFIED, rating=verdict.rating, comment=verdict.reason),)
