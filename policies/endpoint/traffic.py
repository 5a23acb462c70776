"""Admission of requests to endpoints: which may be sent where, and when.

At most `concurrency` requests are under way. Each endpoint has a gate: a Retry-After closes it
until the time named; failures in a row trip it (a circuit breaker), and after a cool-down one
request is sent on trial. A gate starts like a tripped one, so a wrong key costs one request. While
no gate is open, requests wait without a slot; only their patience runs. A garbled answer is the
fault of its request alone, unless nearly all of an endpoint's last answers are.

Everything runs on one event loop and uses its clock.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ..engines.engine import EngineError
from .faults import RefusedError, TemporaryError

TRIP_AFTER = 5
RECENT = 32
"""How many of an endpoint's last answers are remembered."""
GARBLED_SHARE = 0.9
"""The share of garbled answers, of so many, from which an endpoint counts as down."""
COOL_DOWN_S = 2.0
LONGEST_COOL_DOWN_S = 60.0
NOTABLE_S = 10.0
"""Shorter pauses are not worth a warning."""

SLACK_S = 1e-3
"""Event loops may call a timer a moment early."""

logger = logging.getLogger("lpfloop.endpoint")


@dataclass(slots=True)
class Patience:
    """How long endpoints may keep one request waiting; time in our own queue does not count."""

    seconds: float
    began: float
    queued: float = 0.0

    def left(self, now: float) -> float:
        """Return the seconds that are left at `now`."""
        return self.seconds - (now - self.began - self.queued)


@dataclass(slots=True, eq=False)
class Gate:
    """One endpoint's gate: when it opens, and whether all requests may pass or one on trial."""

    place: int
    url: str
    opens_at: float = -math.inf
    proven: bool = False
    trier: "Passage | None" = None
    failures: int = 0
    trips: int = 0
    told: str = "it has not answered yet"
    garbled: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))

    def free(self, now: float) -> bool:
        """Whether the next request may pass."""
        return self.trier is None and self.opens_at <= now + SLACK_S

    @property
    def is_garbling(self) -> bool:
        """Whether nearly all of the last answers are garbled."""
        return sum(self.garbled) >= GARBLED_SHARE * RECENT


@dataclass(slots=True, eq=False)
class Passage:
    """One admitted attempt."""

    gate: Gate


class Traffic:
    """The gates of an engine's endpoints, and its slots."""

    def __init__(self, urls: Iterable[str], concurrency: int) -> None:
        self.answers = 0
        self._gates = [Gate(place, url) for place, url in enumerate(urls)]
        self._slots = Slots(concurrency)
        self._changed = asyncio.Event()
        self._stopped: str | None = None

    def resize(self, concurrency: int) -> None:
        """Change how many requests may be under way at once."""
        self._slots.resize(concurrency)

    def stop(self, error: EngineError) -> None:
        """Admit no more requests; those that wait get the error."""
        self._stopped = self._stopped or str(error)
        self._notify()

    @asynccontextmanager
    async def passage(self, turn: int, patience: Patience) -> AsyncGenerator[Passage]:
        """Wait for a slot and an open gate, `turn`'s first; learn from how the attempt ends.

        Raises:
            EngineError: when patience ends first, or the engine was stopped.
        """
        passage = Passage(await self._enter(turn, patience))
        if not passage.gate.proven:
            passage.gate.trier = passage
        try:
            yield passage
        except TemporaryError as fault:
            self._failed(passage, fault)
            raise
        except RefusedError:
            self.prove(passage)
            raise
        except EngineError as error:
            self.stop(error)
            raise
        else:
            self.prove(passage)
            passage.gate.garbled.append(False)
            self.answers += 1
        finally:
            self._slots.release()
            if passage.gate.trier is passage:
                passage.gate.trier = None
                self._notify()

    def prove(self, passage: Passage) -> None:
        """Note that an endpoint answers: all requests may pass."""
        gate = passage.gate
        if gate.trips:
            logger.warning("%s: answers again", gate.url)
        if not gate.proven:
            gate.proven, gate.trier = True, None
            self._notify()
        gate.failures = gate.trips = 0

    def _failed(self, passage: Passage, fault: TemporaryError) -> None:
        gate, now = passage.gate, asyncio.get_running_loop().time()
        gate.told = str(fault)
        if fault.pause_s is not None:
            gate.opens_at = max(gate.opens_at, now + fault.pause_s)
            level = logging.INFO if fault.pause_s < NOTABLE_S else logging.WARNING
            logger.log(level, "%s: asks for a pause of %.1f s (%s)", gate.url, fault.pause_s, fault)
            return
        gate.failures += not fault.garbled
        gate.garbled.append(fault.garbled)
        logger.info("%s: %s", gate.url, fault)
        is_down = gate.failures >= TRIP_AFTER or gate.is_garbling
        if gate.trier is passage or (gate.proven and is_down):
            rest = min(COOL_DOWN_S * 2.0 ** min(gate.trips, 10), LONGEST_COOL_DOWN_S)
            gate.trips += 1
            gate.proven = False
            gate.garbled.clear()
            gate.opens_at = max(gate.opens_at, now + rest)
            logger.warning("%s: not used for %.0f s (%s)", gate.url, rest, fault)

    async def _enter(self, turn: int, patience: Patience) -> Gate:
        loop = asyncio.get_running_loop()
        while True:
            asked = loop.time()
            await self._slots.acquire()
            patience.queued += loop.time() - asked
            if self._stopped is not None:
                self._slots.release()
                raise EngineError(self._stopped)
            order = (self._gates[(turn + i) % len(self._gates)] for i in range(len(self._gates)))
            gate = next((gate for gate in order if gate.free(loop.time())), None)
            if gate is not None:
                return gate
            self._slots.release()
            await self._opening(patience)

    async def _opening(self, patience: Patience) -> None:
        """Wait until a gate opens or its state changes."""
        now = asyncio.get_running_loop().time()
        tried = any(gate.trier is not None for gate in self._gates)
        opens = min((gate.opens_at for gate in self._gates if gate.trier is None), default=math.inf)
        until = now + patience.left(now)
        # A gate that opens too late can still be replaced by a trial that succeeds.
        if until <= now or (opens > until and not tried):
            raise self.out_of_patience(patience)
        changed = self._changed
        try:
            async with asyncio.timeout_at(min(opens, until)):
                await changed.wait()
        except TimeoutError:
            pass

    def out_of_patience(self, patience: Patience) -> EngineError:
        """Return the error of a request that was kept waiting too long."""
        reasons = "; ".join(f"{gate.url}: {gate.told}" for gate in self._gates)
        return EngineError(
            f"no endpoint answers within {patience.seconds:g} s (engine.patience_s); nothing is"
            f" lost: resume when they do: {reasons}"
        )

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Slots:
    """A semaphore whose size can change; first come, first served."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for a slot."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._admit()
        try:
            # Cancelled just after it was granted: pass the slot on, or it would be lost.
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self._taken -= 1
        self._admit()

    def resize(self, limit: int) -> None:
        """Change the number of slots; a slot that is held stays held."""
        self._limit = limit
        self._admit()

    def _admit(self) -> None:
        while self._waiters and self._taken < self._limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)
