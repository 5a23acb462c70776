"""Which unit begins next: none while the run is paused, stopping, or out of budget."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Generic, TypeVar

from ...stores.journal_reader import Cost, Unit
from .budget import Budget
from .stop import StopSignal

B = TypeVar("B")


class Next(Enum):
    """Whether a unit can begin: now, perhaps later, or none any more."""

    READY = auto()
    WAIT = auto()
    NONE = auto()


class Admission(Generic[B]):
    """The units that are owed, each prepared when its turn has come.

    `prepare` returns what a unit asks for, or None if there is nothing to ask for. `cost` bounds
    what that can spend.
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

    def look(self) -> Next:
        """Say whether `take` would give a unit."""
        if self._ended or self._stop.requested:
            return Next.NONE
        if self._stop.paused:
            return Next.WAIT
        self._prepare_next()
        if self._next is None:
            return self._end()
        if self._budget.admits(self._next[2]):
            return Next.READY
        if self._budget.spending:
            return Next.WAIT
        self._budget.refuse(self._next[2])
        return self._end()

    def take(self) -> B:
        """Return what the next unit asks for, its cost set aside; only after `look` said READY."""
        if self._next is None:
            raise RuntimeError("no unit is ready to begin")
        unit, asked, cost = self._next
        self._next = None
        self._budget.set_aside(unit.key, cost)
        return asked

    def _end(self) -> Next:
        self._ended = True
        return Next.NONE

    def _prepare_next(self) -> None:
        """Prepare the next unit, unless one waits already."""
        while self._next is None:
            unit = next(self._units, None)
            if unit is None:
                return
            asked = self._prepare(unit)
            if asked is not None:
                self._next = (unit, asked, self._cost(asked))
