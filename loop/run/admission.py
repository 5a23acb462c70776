"""Which unit begins next: none while the run is paused, stopping, or out of budget.

Of the next few units, those go first whose rows to read are committed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Generic, TypeVar

from ...stores.journal_reader import Cost, Unit
from .budget import Budget
from .stage import Stage

LOOKAHEAD = 64
"""Units that are looked at for one that need not wait."""

B = TypeVar("B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a unit asks of the budget: expected in all; at most, for its first slice or request."""

    expected: Cost
    slice_: Cost
    request: Cost


class Next(Enum):
    """Whether a unit can begin: now, perhaps later, or none any more."""

    READY = auto()
    WAIT = auto()
    NONE = auto()


class Admission(Generic[B]):
    """The units that are owed, each prepared when its turn has come.

    `prepare` returns what a unit asks for, or None if there is nothing to ask for. `demand` says
    what that costs. The last units before a limit begin one at a time, and as much of the last one
    is asked as fits: what is answered is kept.
    """

    def __init__(
        self,
        stage: Stage,
        budget: Budget,
        prepare: Callable[[Unit], B | None],
        demand: Callable[[B], Demand],
    ) -> None:
        self._stage = stage
        self._budget = budget
        self._units = deque(stage.owed)
        self._prepare = prepare
        self._demand = demand
        self._next: tuple[Unit, B] | None = None
        self._ended = False

    def look(self) -> Next:
        """Say whether `take` would give a unit."""
        flow = self._stage.flow
        if self._ended or flow.ended:
            return Next.NONE
        if flow.stop.paused:
            return Next.WAIT
        self._prepare_next()
        if self._next is None:
            return Next.WAIT if self._units else self._end()
        return self._afford(self._next[1]) if self._budget.limited else Next.READY

    def take(self) -> B:
        """Return what the next unit asks for; only after `look` said READY."""
        if self._next is None:
            raise RuntimeError("no unit is ready to begin")
        unit, asked = self._next
        self._next = None
        self._budget.open(unit.key, self._demand(asked).expected)
        return asked

    def _afford(self, asked: B) -> Next:
        """Say whether the budget has room for what a unit asks."""
        demand = self._demand(asked)
        if self._budget.expects(demand.expected) and self._budget.fits(demand.slice_):
            return Next.READY
        if self._budget.spending:
            return Next.WAIT
        if self._budget.fits(demand.request):
            return Next.READY
        self._budget.refuse(demand.request)
        return self._end()

    def _end(self) -> Next:
        self._ended = True
        return Next.NONE

    def _prepare_next(self) -> None:
        """Prepare the next unit, unless one waits already, or all have something to wait for."""
        while self._next is None and (unit := self._readable()) is not None:
            asked = self._prepare(unit)
            if asked is not None:
                self._next = (unit, asked)

    def _readable(self) -> Unit | None:
        """Take the first unit that need not wait for what it reads."""
        for place, unit in enumerate(islice(self._units, LOOKAHEAD)):
            if not self._stage.waits(unit):
                del self._units[place]
                return unit
        return None
