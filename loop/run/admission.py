"""Which unit begins next: none while the run is paused, stopping, or out of budget.

An admission is what engines draw their batches from. They may ask it whether the next one is there,
so what is in flight is finished and committed while no new unit may begin.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ...stores.journal_reader import Cost, Unit
from .budget import Budget
from .stop import StopSignal

POLL_S = 0.05
B = TypeVar("B")


class Admission(Generic[B]):
    """Batches of the units that are owed, each prepared when its turn has come.

    `prepare` returns a unit's batch, or None if there is nothing to ask for. `cost` bounds what the
    batch can spend.
    """

    def __init__(
        self,
        stop: StopSignal,
        budget: Budget,
        units: Iterable[Unit],
        prepare: Callable[[Unit], B | None],
        cost: Callable[[B], Cost],
    ) -> None:
        self._stop = stop
        self._budget = budget
        self._units = iter(units)
        self._prepare = prepare
        self._cost = cost
        self._next: tuple[Unit, B, Cost] | None = None
        self._ended = False

    def __iter__(self) -> Iterator[B]:
        return self

    def ready(self) -> bool:
        """Whether `next` would answer, or end, without waiting for anything else."""
        if self._ended or self._stop.requested:
            return True
        if self._stop.paused:
            return False
        self._look()
        return self._next is None or self._fits or not self._budget.spending

    def __next__(self) -> B:
        while not self.ready():
            time.sleep(POLL_S)
        if self._ended or self._stop.requested:
            raise StopIteration
        self._look()
        if self._next is None:
            self._ended = True
            raise StopIteration
        unit, batch, cost = self._next
        if not self._fits:
            self._budget.refuse(cost)
            self._ended = True
            raise StopIteration
        self._next = None
        self._budget.reserve(unit.key, cost)
        return batch

    @property
    def _fits(self) -> bool:
        return self._next is not None and self._budget.admits(self._next[2])

    def _look(self) -> None:
        """Prepare the next unit's batch, unless one waits already."""
        while self._next is None:
            unit = next(self._units, None)
            if unit is None:
                return
            batch = self._prepare(unit)
            if batch is not None:
                self._next = (unit, batch, self._cost(batch))
