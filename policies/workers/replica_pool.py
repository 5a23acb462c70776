"""Replicas of a model, each in a seat with a thread of its own; they come and go.

A replica is an engine or a scorer with a worker of its own, and is used by its seat's thread alone.
One that gives up, after all its restarts, is replaced by a new one; one that gives up again and
again is left out, and the last one's error is raised. How they share a stream's work says
`shared_stream`.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Generic, Protocol, TypeVar

from ..engines.canary import StaleWeightsError
from ..engines.engine import EngineError, UnloadableError
from .places import Berth
from .supervised import CLOSED, GivenUpError
from .work import In, Out, WorkKind
from .worker import WorkerInfo

logger = logging.getLogger("lpfloop.worker")

REPLACEMENTS = 3
"""How often a replica is replaced in a row, without a result from it in between."""


class Replica(Protocol):
    """A model in a worker of its own."""

    @property
    def pid(self) -> int | None:
        """The present worker's process id, or None."""
        ...

    @property
    def waits(self) -> bool:
        """Whether no node has had room for the worker yet."""
        ...

    def loaded(self, within_s: float) -> WorkerInfo | None:
        """Wait until the model is loaded; return None if it is not `within_s` seconds from now."""
        ...

    def stream(self, items: Iterable[In], work: WorkKind[In, Out]) -> Iterator[Out]:
        """Send items while there is room, and yield results as they come."""
        ...

    def sleep(self) -> None:
        """Move the model into the machine's memory."""
        ...

    def wake(self) -> None:
        """Move the model back to its devices."""
        ...

    def close(self) -> None:
        """End the worker; any thread may."""
        ...


R = TypeVar("R", bound=Replica)
T = TypeVar("T")


USELESS = (GivenUpError, UnloadableError, StaleWeightsError)
"""What a replica raises that cannot go on, where others may."""


class Seat(Generic[R]):
    """A place in a pool: the replica that has it, and the thread that alone uses that.

    Its number may be had by another one later, its ticket never. One that is `leaving` is given
    nothing more. `fault` is why its replica is of no use, until a stream has seen to it: the one in
    which it came up may have been over by then.
    """

    def __init__(self, number: int, ticket: int, berth: Berth, replica: R) -> None:
        self.number = number
        self.ticket = ticket
        self.berth = berth
        self.replica = replica
        self.losses = 0
        self.leaving = False
        self.fault: EngineError | None = None
        self._thread = ThreadPoolExecutor(1, f"replica-{number}")

    def do(self, job: Callable[[], T]) -> Future[T]:
        """Have the seat's thread do a job, after those that it was given before.

        Where the thread has ended, as the replica left or the pool was closed, the job fails.
        """
        try:
            return self._thread.submit(job)
        except RuntimeError:
            failed: Future[T] = Future()
            failed.set_exception(EngineError(CLOSED))
            return failed

    def leave(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._thread.shutdown(wait=False)


class ReplicaPool(Generic[R]):
    """Holds a replica for each of `berths`, which `start` opens; all start at once.

    `changes` counts how often seats came or went. While it sleeps its devices may be lent to
    others, so it takes another size only when it wakes.
    """

    def __init__(self, start: Callable[[int, Berth], R], berths: Sequence[Berth]) -> None:
        self._start = start
        self._changing = threading.Lock()
        self._closed = False
        self._last_error: EngineError | None = None
        self._tickets = count()
        self.changes = 0
        self.seats: list[Seat[R]] = []
        self._leaving: list[Seat[R]] = []
        self._asleep = False
        self._size_awake: Sequence[Berth] | None = None
        try:
            for berth in berths:
                self._add(berth)
        except BaseException:
            self.close()
            raise

    def resize(self, berths: Sequence[Berth]) -> None:
        """Have a replica for each of `berths` from now on; those that leave finish what they have.

        If the pool sleeps, it changes when it wakes.

        Raises:
            EngineError: if no worker process can be started.
        """
        with self._changing:
            if self._closed:
                return
            if self._asleep:
                self._size_awake = berths
                return
            wanted = Counter(berths)
            # Whoever still waits for a node goes first.
            for seat in sorted(self.seats, key=lambda seat: seat.replica.waits):
                if not wanted[seat.berth]:
                    self._dismiss(seat)
                else:
                    wanted[seat.berth] -= 1
            for berth in wanted.elements():
                self._add(berth)

    def sleep(self) -> None:
        """Move every replica into the machine's memory; nothing may be in flight."""
        with self._changing:
            self._asleep = True
        self.each(lambda replica: replica.sleep())

    def wake(self) -> None:
        """Move every replica back to its devices, then take the size that was asked for meanwhile.

        Raises:
            EngineError: if none can, or no further worker process can be started.
        """
        self.each(lambda replica: replica.wake())
        with self._changing:
            self._asleep = False
            wanted, self._size_awake = self._size_awake, None
        if wanted is not None:
            self.resize(wanted)

    def _add(self, berth: Berth) -> None:
        taken = {seat.number for seat in self.seats}
        number = next(n for n in count() if n not in taken)
        seat = Seat(number, next(self._tickets), berth, self._start(number, berth))
        self.seats = [*self.seats, seat]
        self.changes += 1

    def _dismiss(self, seat: Seat[R]) -> None:
        """Let a replica go once it has finished what it has."""
        self.seats = [other for other in self.seats if other is not seat]
        seat.leaving = True
        self._leaving = [*self._leaving, seat]
        self.changes += 1
        seat.do(partial(self._let_go, seat))

    def _let_go(self, seat: Seat[R]) -> None:
        """End a replica that has finished what it had (the last job of its seat's thread)."""
        seat.replica.close()
        seat.leave()
        with self._changing:
            self._leaving = [other for other in self._leaving if other is not seat]

    def each(self, order: Callable[[R], T]) -> list[T]:
        """Have every replica do something at the same time; return what each says.

        Nothing is said by those that are of no use, now or since before: as long as there are
        others, the next stream replaces them or leaves them out.

        Raises:
            EngineError: if all are of no use, or one cannot do it in another way.
        """
        orders = [(seat, seat.do(partial(_obeyed, seat, order))) for seat in self.open_seats()]
        said: list[T] = []
        for seat, given in orders:
            try:
                said += given.result()
            except StaleWeightsError as error:
                which = f"replica {seat.number + 1} of {len(orders)}: " if len(orders) > 1 else ""
                raise StaleWeightsError(f"{which}{error}") from error
            except EngineError:
                if not seat.leaving:
                    raise
        faults = [seat.fault for seat, _ in orders if seat.fault is not None and not seat.leaving]
        if faults and not said:
            raise faults[0]
        return said

    def replaced(self, seat: Seat[R], error: EngineError) -> bool:
        """Put a new replica in the place of one that gave up; return whether there is one.

        Raises:
            EngineError: the old one's, if it was the last and is not replaced.
        """
        with self._changing:
            if seat.fault is not error:  # Another stream has seen to it.
                return any(other is seat for other in self.open_seats())
            seat.fault = None
        seat.replica.close()
        seat.losses += 1
        with self._changing:
            seats = self.open_seats()
            told = f"replica {seat.number + 1} of {len(seats)}: {error}"
            if seat.leaving:
                return False
            # What cannot be loaded once cannot be loaded again, but other devices may hold it.
            if seat.losses <= REPLACEMENTS and isinstance(error, GivenUpError):
                logger.warning("%s; replaced (%d of %d)", told, seat.losses, REPLACEMENTS)
                seat.replica = self._start(seat.number, seat.berth)
                return True
            self.seats = [other for other in seats if other is not seat]
            self.changes += 1
            if not self.seats:
                self._last_error = error
        seat.leave()
        if not self.seats:
            raise error
        logger.warning("%s; left out: %d are left", told, len(self.seats))
        return False

    def close(self) -> None:
        """End every replica; what streams are under way end with an error."""
        with self._changing:
            self._closed = True
            seats, self.seats = [*self.seats, *self._leaving], []
            self.changes += 1
        ends = [threading.Thread(target=seat.replica.close) for seat in seats]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        for seat in seats:
            seat.leave()

    def open_seats(self) -> list[Seat[R]]:
        """Return all seats.

        Raises:
            EngineError: if it was closed; the last replica's, if all of them were left out.
        """
        if not self.seats:
            raise EngineError(CLOSED) if self._closed or not self._last_error else self._last_error
        return self.seats


def _obeyed(seat: Seat[R], order: Callable[[R], T]) -> list[T]:
    """Return what a seat's replica says, if it is of use (a job of the seat's thread)."""
    if seat.fault is None:
        try:
            return [order(seat.replica)]
        except (GivenUpError, UnloadableError) as error:
            seat.fault = error
    return []
