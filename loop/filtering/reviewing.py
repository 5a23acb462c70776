"""Asking a judge how good prompts are, and storing what it says of each.

A reply that can not be read is never a number: the prompt is asked about again under a new derived
seed, at most `prompts.quality.attempts` times in all, and then stored unscored with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...critics.quality.reviewing import Reviewer, unread
from ...critics.reply import Reading, Status
from ...policies.engine import Batch, Completion, Request
from ...stores.journal_reader import Cost, Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Prompt, PromptReview, storable
from ..admission import Admission
from ..budget import upper_bound
from ..models import Served
from ..reporter import Advance
from ..rows import Prompts
from ..run import Run, Stage
from ..sampling import engine_sampling, record_failures, spent

UNASKED = unread(Status.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A prompt under review, with what the latest reply says of it."""

    prompt: Prompt
    attempts: int = 0
    text: str = ""
    reading: Reading = UNASKED
    intention: str | None = None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to ask any more."""
        return self.reading.status == SCORED

    @property
    def request_id(self) -> str:
        """What its requests are called."""
        return row_id("review", self.prompt.prompt_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewing:
    """A stage of reviews, one a prompt, a unit for each chunk of `prompts`."""

    run: Run
    iteration: int
    reviewer: Reviewer
    served: Served
    prompts: Prompts

    @property
    def identity(self) -> Json:
        """What a review depends on besides its prompt."""
        config = self.run.config.prompts.quality
        return {
            "reviewer": self.reviewer.digest,
            "served": self.served.params,
            "sampling": config.sampling.model_dump(mode="json"),
            "attempts": config.attempts,
            "retry_temperature": config.retry_temperature,
        }

    def pay(self, stage: Stage) -> None:
        """Review what the stage owes."""
        if not stage.owed:
            return
        for unit, asked, cost in self._reviewed(stage):
            rows = [self._row(a) for a in asked]
            unscored = sum(row.status != SCORED for row in rows)
            advance = replace(cost, rows=len(rows), unscored=unscored)
            stage.commit(unit, {PromptReview: rows}, advance)

    def _reviewed(self, stage: Stage) -> Iterator[tuple[Unit, Sequence[_Asked], Advance]]:
        """Ask about every unit; give each as soon as no prompt of it is to be asked again."""
        config = self.run.config.prompts.quality
        units = {unit.key: unit for unit in stage.owed}
        state: dict[str, Sequence[_Asked]] = {}
        costs = dict.fromkeys(units, Advance())
        for attempt in range(config.attempts):
            temperature = config.retry_temperature if attempt else None
            sampling = engine_sampling(config.sampling, temperature=temperature)
            batches = self._again(state, attempt) if attempt else self._first(stage, state)
            for result in self.run.engine(self.served).generate(batches, sampling):
                asked = self._heard(state[result.key], result.completions)
                cost = spent(result.completions, rows=0)
                costs[result.key] += replace(cost, retries=cost.calls if attempt else 0)
                record_failures(self.run, result.completions)
                if attempt + 1 == config.attempts or all(a.settled for a in asked):
                    del state[result.key]
                    yield units[result.key], asked, costs[result.key]
                else:
                    state[result.key] = asked
                    self.run.budget.park(result.key)
            if not state or self.run.stop.requested:
                return

    def _first(self, stage: Stage, state: dict[str, Sequence[_Asked]]) -> Admission[Batch]:
        """Ask about a unit at a time: only what is in flight, or is unread, is held in memory."""
        config = self.run.config.prompts.quality

        def prepare(unit: Unit) -> Batch:
            state[unit.key] = [_Asked(prompt=p) for p in self.prompts.chunks[unit.chunk]]
            return self._batch(unit.key, state[unit.key], 0)

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

    def _batch(self, key: str, asked: Sequence[_Asked], attempt: int) -> Batch:
        """Return the questions that have no answer yet; each attempt has its own seed."""
        seed = self.run.config.seed
        requests = tuple(
            Request(
                request_id=a.request_id,
                messages=self.reviewer.ask(a.prompt.instruction),
                seed=derive_seed(seed, "review", a.prompt.prompt_id, attempt),
            )
            for a in asked
            if not a.settled
        )
        return Batch(key=key, requests=requests)

    def _heard(
        self, asked: Sequence[_Asked], completions: Sequence[Completion]
    ) -> Sequence[_Asked]:
        replies = {completion.request_id: completion for completion in completions}
        return [
            self._updated(a, replies[a.request_id]) if a.request_id in replies else a for a in asked
        ]

    def _updated(self, asked: _Asked, reply: Completion) -> _Asked:
        text = storable(reply.text)
        reading, intention = self.reviewer.read(text, reply.finish_reason)
        return replace(
            asked, attempts=asked.attempts + 1, text=text, reading=reading, intention=intention
        )

    def _row(self, asked: _Asked) -> PromptReview:
        return PromptReview(
            prompt_id=asked.prompt.prompt_id,
            iteration=self.iteration,
            judge=self.served.identity,
            aspects=asked.reading.aspects,
            intention=asked.intention,
            status=asked.reading.status,
            attempts=asked.attempts,
            text=asked.text,
        )
