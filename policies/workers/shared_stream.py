"""One stream of slices over the replicas of a pool: each gets the next one when it has least to do.

The thread that consumes a stream asks the caller for slices, one at a time and only where a replica
has room, hands each to the replica with the fewest requests outstanding, and gives results as they
come. What a replica had that gave up is handed out again; so nothing is lost or given twice. A
replica that is new in the pool joins the streams that are under way, one that leaves finishes what
it has.
"""

import queue
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from ..engines.engine import EngineError
from ..engines.feed import POLL_S, arrived
from .portions import Portion, Portions
from .replica_pool import USELESS, R, Replica, ReplicaPool, Seat
from .supervised import CLOSED
from .work import In, Out, WorkKind
from .worker_line import WAIT_S

GRACE, GRACE_S = 0.25, 0.1
"""How long the first replica to have loaded waits for the others: a share of the time that it took,
and some seconds. They load at the same time, and one alone would take all of a small stage."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A replica can work, and wants that many requests ahead."""

    window: int


@dataclass(frozen=True, slots=True)
class _Came(Generic[Out]):
    """A replica's result."""

    result: Out


@dataclass(frozen=True, slots=True)
class _Left:
    """A replica's part in a stream is over: it gave up, or there is no more for it."""

    error: BaseException | None


_Event = tuple[Portion[Seat[R], In], _Loaded | _Came[Any] | _Left]


class SharedStream(Generic[R, In, Out]):
    """One stream over several replicas."""

    def __init__(self, pool: ReplicaPool[R], items: Iterable[In], work: WorkKind[In, Out]) -> None:
        self._pool = pool
        self._source = iter(items)
        self._work = work
        self._more = True
        self._begun = time.monotonic()
        self._gathered = 0.0
        self._changes = -1
        self._returned: deque[In] = deque()
        self._portions = Portions[Seat[R], In]()
        self._events: queue.SimpleQueue[_Event[R, In]] = queue.SimpleQueue()

    def results(self) -> Iterator[Out]:
        """Yield every item's result, in the order in which the replicas finish them."""
        try:
            self._pool.open_seats()
            while self._unfinished:
                self._follow()
                handed = self._hand_out()
                # Where there is room, but nothing for it yet, the source is looked at again soon.
                waits = self._more and self._portions.hungry() is not None
                event = self._next_event(0 if handed else POLL_S if waits else WAIT_S)
                if event is not None:
                    yield from self._heard(*event)
        finally:
            for portion in self._portions:
                portion.feed.cancel()

    @property
    def _unfinished(self) -> bool:
        return self._more or bool(self._returned) or self._portions.in_flight

    def _follow(self) -> None:
        """Let replicas in that came, and hand nothing more to those that leave."""
        if self._changes == self._pool.changes:
            return
        self._changes = self._pool.changes
        seats = self._pool.seats
        there = {portion.number for portion in self._portions}
        for portion in self._portions:
            if portion.seat.leaving and not portion.leaving:
                self._portions.dismiss(portion)
        for seat in seats:
            if seat.ticket not in there:
                self._join(seat)

    def _join(self, seat: Seat[R]) -> None:
        portion = self._portions.join(seat.ticket, seat)
        served = seat.do(partial(self._serve, portion))
        served.add_done_callback(lambda done: self._events.put((portion, _Left(done.exception()))))

    def _serve(self, portion: Portion[Seat[R], In]) -> None:
        """Work on one replica's portion, in the replica's thread."""
        seat = portion.seat
        if seat.fault is not None:
            raise seat.fault
        try:
            self._serve_with(seat.replica, portion)
        except USELESS as error:
            seat.fault = error
            raise

    def _serve_with(self, replica: Replica, portion: Portion[Seat[R], In]) -> None:
        while not portion.feed.cancelled:
            if (info := replica.loaded(WAIT_S)) is None:
                continue
            self._events.put((portion, _Loaded(info.window)))
            for result in replica.stream(portion.feed, self._work):
                self._events.put((portion, _Came(result)))
            return

    def _gathering(self) -> bool:
        """Whether those that have loaded still wait for those that have not."""
        return (
            self._portions.loading
            and time.monotonic() < self._gathered
            and any(not (p.window or p.seat.replica.waits) for p in self._portions)
        )

    def _hand_out(self) -> bool:
        """Hand the next item to the replica with the least to do; return whether one was."""
        portion = self._portions.hungry()
        if portion is None or self._gathering():
            return False
        item = self._next_item()
        if item is None:
            return False
        self._portions.give(portion, item)
        return True

    def _next_item(self) -> In | None:
        """Return what came back from a replica that gave up, else what the caller has ready."""
        if self._returned:
            return self._returned.popleft()
        if not self._more or (self._portions.in_flight and not arrived(self._source)):
            return None
        item = next(self._source, None)
        if item is None:
            self._more = False
        elif self._portions.holds(item.key):
            raise ValueError(f"two batches in flight have the key {item.key}")
        return item

    def _next_event(self, timeout_s: float) -> "_Event[R, In] | None":
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _heard(
        self, portion: Portion[Seat[R], In], event: _Loaded | _Came[Any] | _Left
    ) -> Iterator[Out]:
        match event:
            case _Loaded(window):
                self._portions.loaded(portion, window)
                now = time.monotonic()
                self._gathered = self._gathered or now + GRACE_S + GRACE * (now - self._begun)
            case _Came(result):
                self._portions.came(portion, result.key)
                portion.seat.losses = 0
                yield result
            case _Left(error):
                self._lost(portion, error)

    def _lost(self, portion: Portion[Seat[R], In], error: BaseException | None) -> None:
        """Take back what a replica had that left or gave up, and let its successor join."""
        over = portion.seat.leaving and (error is None or isinstance(error, EngineError))
        if not (over or isinstance(error, USELESS)):
            raise error or EngineError(CLOSED)
        self._returned.extendleft(reversed([*self._portions.leave(portion)]))
        if isinstance(error, USELESS) and self._pool.replaced(portion.seat, error):
            self._join(portion.seat)
