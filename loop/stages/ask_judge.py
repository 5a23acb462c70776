"""Asking a judge about what units owe, and again about what could not be read.

A reply that can not be read is never a number: its inquiry is put again, under a new derived seed
and at another temperature, at most `attempts` times in all. A unit is done as soon as none of its
inquiries is to be put again; the others go on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

from ...configs.schema import SamplingConfig
from ...policies.engines.engine import Batch, Completion, Request
from ...stores.journal_reader import Cost, Unit
from ..run.admission import Admission
from ..run.budget import upper_bound
from ..run.models import Served
from ..run.reporter import Advance
from ..run.run import Run, Stage
from .draw_candidates import engine_sampling, record_failures, spent


class Inquiry(Protocol):
    """What one request asks, with what its latest reply said."""

    @property
    def inquiry_id(self) -> str:
        """What its requests are called."""
        ...

    @property
    def attempts(self) -> int:
        """How many replies it had."""
        ...

    @property
    def settled(self) -> bool:
        """Whether there is nothing to ask any more."""
        ...

    def request(self, attempt: int) -> Request:
        """Return the request of an attempt, counted from 0."""
        ...

    def heard(self, reply: Completion) -> Self:
        """Return the inquiry after the reply to its latest request."""
        ...


Q = TypeVar("Q", bound=Inquiry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiring(Generic[Q]):
    """A stage of inquiries, all put to one judge.

    `work` gives a unit's inquiries when its turn has come; `commit` takes those of a finished unit,
    with what its replies cost.
    """

    run: Run
    judge: Served
    sampling: SamplingConfig
    attempts: int
    retry_temperature: float
    work: Callable[[Unit], Sequence[Q]]
    commit: Callable[[Unit, Sequence[Q], Advance], None]

    def pay(self, stage: Stage) -> None:
        """Ask what the stage owes."""
        if not stage.owed:
            return
        units = {unit.key: unit for unit in stage.owed}
        open_: dict[str, Sequence[Q]] = {}
        costs = dict.fromkeys(units, Advance())
        for attempt in range(self.attempts):
            batches = self._again(open_, attempt) if attempt else self._first(stage, open_)
            for result in self.run.engine(self.judge).generate(batches):
                put = _heard(open_[result.key], result.completions)
                costs[result.key] += _cost(result.completions, attempt)
                record_failures(self.run, result.completions)
                if attempt + 1 == self.attempts or all(q.settled for q in put):
                    del open_[result.key]
                    self.commit(units[result.key], put, costs[result.key])
                else:
                    open_[result.key] = put
                    self.run.budget.park(result.key)
            if not open_ or self.run.stop.requested:
                return

    def _first(self, stage: Stage, open_: dict[str, Sequence[Q]]) -> Admission[Batch]:
        """Ask about a unit at a time: only what is in flight, or is unread, is held in memory."""

        def prepare(unit: Unit) -> Batch | None:
            put = self.work(unit)
            if all(q.settled for q in put):
                self.commit(unit, put, Advance())
                return None
            open_[unit.key] = put
            return self._batch(unit.key, put, 0)

        def cost(batch: Batch) -> Cost:
            return upper_bound(
                self.run.config.prices,
                batch.requests,
                self.sampling.max_tokens,
                judge=True,
                times=self.attempts,
            )

        return self.run.admission(stage, prepare, cost)

    def _again(self, open_: Mapping[str, Sequence[Q]], attempt: int) -> Iterator[Batch]:
        """Ask again what has no answer yet: admitted, and paid for, with the first attempt."""
        for key, put in list(open_.items()):
            if self.run.stop.requested:
                return
            # What was prepared and then not admitted was never asked: its turn comes another time.
            if all(q.settled or q.attempts == attempt for q in put):
                yield self._batch(key, put, attempt)

    def _batch(self, key: str, put: Sequence[Q], attempt: int) -> Batch:
        temperature = self.retry_temperature if attempt else None
        return Batch(
            key=key,
            requests=tuple(q.request(attempt) for q in put if not q.settled),
            sampling=engine_sampling(self.sampling, temperature=temperature),
        )


def _heard(put: Sequence[Q], completions: Sequence[Completion]) -> Sequence[Q]:
    replies = {completion.request_id: completion for completion in completions}
    return [q.heard(replies[q.inquiry_id]) if q.inquiry_id in replies else q for q in put]


def _cost(completions: Sequence[Completion], attempt: int) -> Advance:
    """Return what replies cost; every attempt after the first is a retry."""
    cost = spent(completions, rows=0)
    return replace(cost, retries=cost.calls if attempt else 0)
