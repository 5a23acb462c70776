"""Slices that were with one machine after another that was lost: what is in them is asked alone.

A request may take down the whole machine that works on it, by the memory that it wants. What was in
flight there goes to other machines, and so would that request, until none is left. So what was in
flight at several such losses is examined as what ends a worker is (see `poison`), over the replicas
of a pool: only the request that does it fails.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Generic

from ..engines.engine import EngineError
from .poison import PoisonSearch, good_request
from .work import In, Out, WorkKind

LOSSES = 3
"""Losses of a machine with the same slice in flight before that is examined: a machine that is
taken away says nothing of what it had."""


class Inquest(Generic[In, Out]):
    """The losses of machines in one stream, and what is asked alone because of them."""

    def __init__(self, work: WorkKind[In, Out]) -> None:
        self._work = work
        self._losses: Counter[str] = Counter()
        self._suspects: list[In] = []
        self._search: PoisonSearch[In, Out] | None = None
        self._asked: In | None = None
        self._good: In | None = None

    @property
    def open(self) -> bool:
        """Whether a slice is examined, or is to be."""
        return bool(self._suspects) or self._search is not None

    @property
    def asks(self) -> bool:
        """Whether something is to be sent alone now."""
        return self.open and self._asked is None

    def next(self) -> In:
        """Return what is to be sent alone.

        Raises:
            EngineError: if nothing else could be answered that shows whose fault it is.
        """
        if self._search is None:
            self._search = PoisonSearch(self._suspects, self._work, self._good)
            self._suspects = []
        self._asked = self._search.ask(last_chance=False)
        if self._asked is None:
            raise EngineError(
                "machine after machine was lost with the same requests, and nothing else was "
                "answered that shows whose fault it is: see why they were lost, and resume the run"
            )
        return self._asked

    def answered(self, item: In, result: Out) -> Iterator[Out]:
        """Take the result of an item; yield the slices that are whole now."""
        if item is not self._asked or self._search is None:
            self._losses.pop(item.key, None)
            self._good = good_request(item, result, self._work) or self._good
            yield result
            return
        self._asked = None
        whole = list(self._search.answered(result))
        if self._search.over:
            self._search = None
        yield from whole

    def returned(self, items: Sequence[In], lost: str) -> list[In]:
        """Take back what a replica had; return what is to be handed out as before.

        `lost` says how its machine was lost, if it was.

        Raises:
            EngineError: if what must be answered was with too many machines that were lost.
        """
        others = [item for item in items if item is not self._asked]
        if len(others) < len(items):
            self._asked = None
            if lost and self._search is not None:
                self._search.died(lost)
        if not lost:
            return others
        self._losses.update(item.key for item in others)
        found = [item for item in others if self._losses[item.key] >= LOSSES]
        if found and self._work.refusal is None:
            raise EngineError(
                f"{LOSSES} machines were lost with the same requests, which cannot be left out "
                f"({lost}): see why they were lost, and resume the run"
            )
        self._suspects += found
        return [item for item in others if self._losses[item.key] < LOSSES]
