"""Replicas of a model that share its work: each gets the next slice when it has the least to do.

A replica is an engine or a scorer with a worker of its own, and is used by one thread alone. The
thread that consumes a stream asks the caller for slices, one at a time and only where a replica has
room, hands each to the replica with the fewest requests outstanding, and gives results as they
come. A replica that gives up, after all its restarts, is replaced by a new one, and its slices are
handed out again; so nothing is lost or given twice. One that gives up again and again is left out,
and the last one's error is raised.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ..engines.engine import EngineError, UnloadableError
from ..engines.feed import Feed, arrived
from .supervised import CLOSED, POLL_S, WAIT_S, GivenUpError
from .work import In, Out, WorkKind
from .worker import WorkerInfo

logger = logging.getLogger("lpfloop.worker")

GRACE, GRACE_S = 0.25, 0.1
"""How long the first replica to have loaded waits for the others: a share of the time that it took,
and some seconds. They load at the same time, and one alone would take all of a small stage."""

REPLACEMENTS = 3
"""How often a replica is replaced in a row, without a result from it in between."""


class Replica(Protocol):
    """A model in a worker of its own."""

    @property
    def pid(self) -> int | None:
        """The present worker's process id, or None."""
        ...

    def ready(self) -> WorkerInfo:
        """Wait until the model is loaded."""
        ...

    def stream(self, items: Iterable[In], work: WorkKind[In, Out]) -> Iterator[Out]:
        """Send items while there is room, and yield results as they come."""
        ...

    def close(self) -> None:
        """End the worker; any thread may."""
        ...


R = TypeVar("R", bound=Replica)
T = TypeVar("T")


class Seat(Generic[R]):
    """A place in a pool: the replica that has it, and the thread that alone uses that."""

    def __init__(self, number: int, replica: R) -> None:
        self.number = number
        self.replica = replica
        self.losses = 0
        self._thread = ThreadPoolExecutor(1, f"replica-{number}")

    def do(self, job: Callable[[], T]) -> Future[T]:
        """Have the seat's thread do a job, after those that it was given before."""
        return self._thread.submit(job)

    def leave(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._thread.shutdown(wait=False)


class ReplicaPool(Generic[R]):
    """Holds `count` replicas, of which `start` opens one by its number; all start at once."""

    def __init__(self, start: Callable[[int], R], count: int) -> None:
        self._start = start
        self._count = count
        self._changing = threading.Lock()
        self.seats = [Seat(number, start(number)) for number in range(count)]

    def stream(
        self, items: Iterable[In], work: WorkKind[In, Out], seats: Sequence[Seat[R]] | None = None
    ) -> Iterator[Out]:
        """Share items among the replicas, or those in `seats`; yield results as they come."""
        return SharedStream(
            self, self._open_seats() if seats is None else seats, items, work
        ).results()

    def each(self, order: Callable[[R], T]) -> list[T]:
        """Have every replica do something at the same time; return what each says.

        Raises:
            EngineError: if one cannot.
        """
        orders = [seat.do(partial(order, seat.replica)) for seat in self._open_seats()]
        return [given.result() for given in orders]

    def replaced(self, seat: Seat[R], error: EngineError) -> bool:
        """Put a new replica in the place of one that gave up; return whether there is one.

        Raises:
            EngineError: the old one's, if it was the last and is not replaced.
        """
        seat.replica.close()
        seat.losses += 1
        told = f"replica {seat.number + 1} of {self._count}: {error}"
        with self._changing:
            seats = self._open_seats()
            # What cannot be loaded once cannot be loaded again, but other devices may hold it.
            if seat.losses <= REPLACEMENTS and not isinstance(error, UnloadableError):
                logger.warning("%s; replaced (%d of %d)", told, seat.losses, REPLACEMENTS)
                seat.replica = self._start(seat.number)
                return True
            seats.remove(seat)
        seat.leave()
        if not seats:
            raise error
        logger.warning("%s; left out: %d are left", told, len(seats))
        return False

    def close(self) -> None:
        """End every replica; what streams are under way end with an error."""
        with self._changing:
            seats, self.seats = self.seats, []
        ends = [threading.Thread(target=seat.replica.close) for seat in seats]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        for seat in seats:
            seat.leave()

    def _open_seats(self) -> list[Seat[R]]:
        if not self.seats:
            raise EngineError(CLOSED)
        return self.seats


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


@dataclass(kw_only=True)
class _Portion(Generic[R, In]):
    """What one replica has of a stream."""

    seat: Seat[R]
    feed: Feed[In]
    away: dict[str, In]
    window: int = 0

    @property
    def outstanding(self) -> int:
        """How many requests it has been handed that are not answered."""
        return sum(len(item.requests) for item in self.away.values())


_Event = tuple[_Portion[R, In], _Loaded | _Came[Any] | _Left]


class SharedStream(Generic[R, In, Out]):
    """One stream over several replicas."""

    def __init__(
        self,
        pool: ReplicaPool[R],
        seats: Sequence[Seat[R]],
        items: Iterable[In],
        work: WorkKind[In, Out],
    ) -> None:
        self._pool = pool
        self._seats = list(seats)
        self._source = iter(items)
        self._work = work
        self._more = True
        self._begun = time.monotonic()
        self._gathered = 0.0
        self._returned: deque[In] = deque()
        self._shares: dict[int, _Portion[R, In]] = {}
        self._events: queue.SimpleQueue[_Event[R, In]] = queue.SimpleQueue()

    def results(self) -> Iterator[Out]:
        """Yield every item's result, in the order in which the replicas finish them."""
        try:
            for seat in self._seats:
                self._join(seat)
            while self._unfinished:
                handed = self._hand_out()
                # Where there is room, but nothing for it yet, the source is looked at again soon.
                waits = self._more and self._hungry() is not None
                event = self._next_event(0 if handed else POLL_S if waits else WAIT_S)
                if event is not None:
                    yield from self._heard(*event)
        finally:
            for share in self._shares.values():
                share.feed.cancel()

    @property
    def _unfinished(self) -> bool:
        return self._more or bool(self._returned) or self._in_flight

    @property
    def _in_flight(self) -> bool:
        return any(share.away for share in self._shares.values())

    def _join(self, seat: Seat[R]) -> None:
        share = _Portion[R, In](seat=seat, feed=Feed(), away={})
        self._shares[seat.number] = share
        served = seat.do(partial(self._serve, share))
        served.add_done_callback(lambda done: self._events.put((share, _Left(done.exception()))))

    def _serve(self, share: _Portion[R, In]) -> None:
        """Work on one replica's share, in the replica's thread."""
        replica = share.seat.replica
        self._events.put((share, _Loaded(replica.ready().window)))
        for result in replica.stream(share.feed, self._work):
            self._events.put((share, _Came(result)))

    def _gathering(self) -> bool:
        """Whether those that have loaded still wait for those that have not."""
        loading = any(not share.window for share in self._shares.values())
        return loading and time.monotonic() < self._gathered

    def _hungry(self) -> "_Portion[R, In] | None":
        """Return the replica with the least to do, if one has room."""
        open_ = [share for share in self._shares.values() if share.outstanding < share.window]
        return min(open_, key=lambda share: share.outstanding, default=None)

    def _hand_out(self) -> bool:
        """Hand the next item to the replica with the least to do; return whether one was."""
        share = self._hungry()
        if share is None or self._gathering():
            return False
        item = self._next_item()
        if item is None:
            return False
        share.away[item.key] = item
        share.feed.put(item)
        return True

    def _next_item(self) -> In | None:
        """Return what came back from a replica that gave up, else what the caller has ready."""
        if self._returned:
            return self._returned.popleft()
        if not self._more or (self._in_flight and not arrived(self._source)):
            return None
        item = next(self._source, None)
        if item is None:
            self._more = False
        elif any(item.key in share.away for share in self._shares.values()):
            raise ValueError(f"two batches in flight have the key {item.key}")
        return item

    def _next_event(self, timeout_s: float) -> "_Event[R, In] | None":
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _heard(self, share: _Portion[R, In], event: _Loaded | _Came[Any] | _Left) -> Iterator[Out]:
        match event:
            case _Loaded(window):
                share.window = window
                now = time.monotonic()
                self._gathered = self._gathered or now + GRACE_S + GRACE * (now - self._begun)
            case _Came(result):
                del share.away[result.key]
                share.seat.losses = 0
                yield result
            case _Left(error):
                self._lost(share, error)

    def _lost(self, share: _Portion[R, In], error: BaseException | None) -> None:
        """Take back what a replica had that gave up, and let its successor join."""
        if not isinstance(error, GivenUpError | UnloadableError):
            raise error or EngineError(CLOSED)
        del self._shares[share.seat.number]
        self._returned.extendleft(reversed(share.away.values()))
        if self._pool.replaced(share.seat, error):
            self._join(share.seat)
        elif not self._shares:
            raise error
