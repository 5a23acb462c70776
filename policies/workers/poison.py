"""Finds, among batches in flight when workers died, the requests that kill them.

`PoisonSearch` starts no process: it returns the next batch to send alone, and takes the result. A
batch that kills the worker alone twice is sent request by request; a request that kills it alone
twice is given up, and all others are answered. Batches with the fewest deaths come first, so that
innocent ones are soon done.

A broken machine kills workers, too. So a request is given up only if another request has been
answered since: one of the search, or one answered earlier, which is sent again as a check.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal

from ..engines.engine import Result
from .model_process import Ans, In, WorkKind

CONVICTING = 2
"""Deaths with one item alone in the worker after which that item counts as the cause."""

MOST_DEATHS = 64
"""Deaths in one search after which the worker counts as broken, even if it answers in between."""


@dataclass(slots=True, kw_only=True)
class _Suspect(Generic[In]):
    """A batch, or one request of it; `places` are indices of requests in the batch."""

    batch: In
    places: tuple[int, ...]
    deaths: int = 0
    reason: str = ""

    @property
    def convicted(self) -> bool:
        return self.deaths >= CONVICTING and len(self.places) <= 1


class PoisonSearch(Generic[In, Ans]):
    """One search among `batches`; `good` is a request that was answered before, or None."""

    def __init__(self, batches: Sequence[In], work: WorkKind[In, Ans], good: In | None) -> None:
        self._work = work
        self._sizes: dict[str, int] = {batch.key: len(batch.requests) for batch in batches}
        self._answers: dict[str, dict[int, Any]] = {batch.key: {} for batch in batches}
        self._suspects: list[_Suspect[In]] = [
            _Suspect(batch=batch, places=tuple(range(len(batch.requests)))) for batch in batches
        ]
        self._examined: _Suspect[In] | Literal["good"] | None = None
        self._deaths = 0
        self.good = good
        if len(batches) == 1:
            # It has been alone already, but a single request must kill once more to be convicted.
            self._suspects[0].deaths = CONVICTING - 1
            self._divide(self._suspects[0])

    @property
    def is_over(self) -> bool:
        """Whether every batch has its result."""
        return not self._suspects

    @property
    def is_waiting(self) -> bool:
        """Whether the last item has neither been answered nor ended the worker."""
        return self._examined is not None

    def ask(self, *, last_chance: bool) -> In | None:
        """Return the next item to send; None when the worker counts as broken.

        At the last chance before the worker is given up, a good request is sent if there is one.
        """
        if self._deaths > MOST_DEATHS:
            return None
        open_cases = [suspect for suspect in self._suspects if not suspect.convicted]
        if open_cases and not (last_chance and self.good is not None):
            self._examined = min(open_cases, key=lambda suspect: suspect.deaths)
            return self._examined.batch
        self._examined = "good"
        return self.good

    def note_death(self, reason: str) -> None:
        """Note that the worker died or hung; while it was loading, no request is blamed."""
        self._deaths += 1
        item, self._examined = self._examined, None
        if isinstance(item, _Suspect):
            item.deaths += 1
            item.reason = reason
            if item.deaths >= CONVICTING:
                self._divide(item)

    def take_result(self, result: Result[Ans]) -> Iterator[Result[Ans]]:
        """Take the result of the last sent item; yield the batches that are whole now."""
        item, self._examined = self._examined, None
        answers = result.answers
        if isinstance(item, _Suspect):
            # The worker works: so the convicted requests, and not a broken machine, killed it.
            self.good = self._work.good(item.batch, result) or self.good
            yield from self._settle(item, answers)
        if any(self._work.worked(answer) for answer in answers):
            for suspect in [s for s in self._suspects if s.convicted]:
                yield from self._settle(suspect, self._refusals(suspect))

    def _divide(self, suspect: _Suspect[In]) -> None:
        """Replace a batch by its requests as separate suspects."""
        if len(suspect.places) <= 1:
            return
        place = self._suspects.index(suspect)
        self._suspects[place : place + 1] = [
            _Suspect(batch=replace(suspect.batch, requests=(request,)), places=(number,))
            for number, request in enumerate(suspect.batch.requests)
        ]

    def _settle(self, suspect: _Suspect[In], answers: Sequence[Any]) -> Iterator[Result[Ans]]:
        self._suspects.remove(suspect)
        key = suspect.batch.key
        found = self._answers[key]
        found.update(zip(suspect.places, answers, strict=True))
        if len(found) == self._sizes[key]:
            yield Result(key=key, answers=tuple(found[place] for place in range(len(found))))

    def _refusals(self, suspect: _Suspect[In]) -> list[Any]:
        refusal = self._work.refusal
        if refusal is None:
            raise ValueError(f"a request of the task {self._work.task} cannot be given up")
        reason = f"it ends every worker that works on it alone: {suspect.reason}"
        return [refusal(request.request_id, reason) for request in suspect.batch.requests]
