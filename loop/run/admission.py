"""Admission of units: no unit begins while the run is paused, stopping, or out of budget.

Among the next few units, those whose input rows are committed begin first.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from itertools import islice
from typing import Any, Generic, TypeVar

from ...stores.journal_reader import Unit
from .budget import Budget
from .engine_client import ModelClient
from .stage import Stage

LOOKAHEAD = 64
"""How many units are searched for one whose input is committed."""
SLICE = 32
"""Requests that travel together: the most that a stall, a stop or a restarted worker loses."""

B = TypeVar("B")


class Next(Enum):
    """Whether a unit can begin: now, perhaps later, or none any more."""

    READY = auto()
    WAIT = auto()
    NONE = auto()


class Admission(Generic[B]):
    """The pending units, each prepared when its turn has come.

    `prepare` opens a unit, or returns None if it needs no request; `requests` returns those of an
    open unit, for which `client` knows the cost. The last units before a limit begin one at a time.
    The very last unit sends as many requests as fit into the budget, and their answers are kept.
    """

    def __init__(
        self,
        stage: Stage,
        budget: Budget,
        client: ModelClient[Any, Any, Any],
        *,
        prepare: Callable[[Unit], B | None],
        requests: Callable[[B], Sequence[Any]],
    ) -> None:
        self._stage = stage
        self._budget = budget
        self._units = deque(stage.pending)
        self._prepare = prepare
        self._requests = requests
        self._client = client
        self._next: tuple[Unit, B] | None = None
        self._ended = False

    def look(self) -> Next:
        """Return whether `take` would return a unit."""
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
        """Return the requests of the next unit; call it only after `look` returned READY."""
        if self._next is None:
            raise RuntimeError("no unit is ready to begin")
        unit, asked = self._next
        self._next = None
        self._budget.open(unit.key, self._client.expected(self._requests(asked)))
        return asked

    def _afford(self, asked: B) -> Next:
        """Return whether the budget has room for a unit's requests."""
        requests, client = self._requests(asked), self._client
        expected, first = client.expected(requests), client.most(requests[:SLICE])
        if self._budget.expects(expected) and self._budget.fits(first):
            return Next.READY
        if self._budget.spending:
            return Next.WAIT
        least = client.most(requests[:1])
        if self._budget.fits(least):
            return Next.READY
        self._budget.refuse(least)
        return self._end()

    def _end(self) -> Next:
        self._ended = True
        return Next.NONE

    def _prepare_next(self) -> None:
        """Prepare the next unit, unless one is prepared already or all wait for their input."""
        while self._next is None and (unit := self._readable()) is not None:
            asked = self._prepare(unit)
            if asked is not None:
                self._next = (unit, asked)

    def _readable(self) -> Unit | None:
        """Remove and return the first unit whose input is committed."""
        for place, unit in enumerate(islice(self._units, LOOKAHEAD)):
            if not self._stage.waits(unit):
                del self._units[place]
                return unit
        return None
