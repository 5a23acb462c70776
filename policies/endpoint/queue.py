"""One queue of requests to the endpoints of a model: which endpoint gets a request, and when.

- An endpoint has `concurrency` slots. A request goes to the endpoint with the fewest requests in
  flight, and after a failure to another one if possible.
- Retry-After closes an endpoint until the time that it names. A 429 without it halves its slots;
  each round of answers adds one again (additive increase, multiplicative decrease).
- `TRIP_AFTER` failures in a row close an endpoint for `COOL_DOWN`; then one request is sent as a
  trial. An endpoint starts with one request, too, so that a wrong key costs one.
- A failed request waits for `BACKOFF` and is sent again. It is given up when it has failed too
  often while the endpoints answered other requests (`SUSPICION`): it is at fault itself.
- If no endpoint answers anything for `retry_timeout_s`, the queue stops.

Everything runs on one event loop and uses its clock.
"""

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    wait_exponential,
    wait_random_exponential,
)

from ...configs.schema import EngineConfig
from ..engines.engine import Completion, EngineError
from .chat_completion import ChatRequest
from .faults import FaultKind, RefusedError, TemporaryError

BACKOFF = wait_random_exponential(multiplier=2.0, max=30.0)
"""How long a failed request waits before its next attempt, in seconds."""
UNREADABLE_BACKOFF = wait_random_exponential(multiplier=0.25, max=4.0)
"""The same after an unreadable reply: the endpoint works, and the next reply may be readable."""

TRIP_AFTER = 8
"""Failures in a row that close an endpoint."""
COOL_DOWN = wait_exponential(multiplier=2.0, max=60.0)
"""How long it stays closed, in seconds; longer after each failure of the request on trial."""

GIVEN_UP_AT = 8.0
SUSPICION: Mapping[FaultKind, tuple[float, float]] = {
    "unreachable": (0.0, 0.0),
    "lost": (1.0, 1.0),
    "slow": (2.0, 1.0),
    "unreadable": (0.5, 0.5),
    "busy": (0.5, 0.125),
    "crowded": (0.5, 0.125),
}
"""The increase of a request's suspicion by a failure; at `GIVEN_UP_AT` the request is given up.

The first number counts if the endpoint's last reply was an answer to another request; the second
one if another request had failed there last, so that the endpoint itself may be the cause. Until
another request was answered, no request is given up.
"""

MINUTE = 60.0

logger = logging.getLogger("lpfloop.endpoint")


@dataclass(slots=True)
class History:
    """The number of a request's failed attempts, and the endpoint of the last one."""

    failures: int = 0
    suspicion: float = 0.0
    avoids: "Server | None" = None


@dataclass(slots=True, eq=False)
class Server:
    """One endpoint: its requests in flight, and its recent replies.

    `most` is the configured concurrency, `slots` how many requests it takes now; one, before it is
    `proven`. Nothing is sent before `opens_at`. `answers_others`: its last reply was an answer.
    """

    url: str
    most: int
    slots: float
    rate: "RateLimit"
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    in_flight: int = 0
    opens_at: float = -math.inf
    proven: bool = False
    answers_others: bool = False
    failures: int = 0
    unreadable: int = 0
    trips: int = 0
    halved_at: float = -math.inf
    last_fault: str = "it has not answered yet"

    def has_room(self, now: float) -> bool:
        """Whether a request may be sent."""
        most = max(1, int(self.slots)) if self.proven else 1
        return self.opens_at <= now and self.in_flight < most

    def resize(self, most: int) -> None:
        """Change the concurrency."""
        self.slots = float(most) if self.slots >= self.most else min(self.slots, most)
        self.most = most

    def prove(self) -> None:
        """Note that the endpoint replies correctly."""
        if self.trips:
            logger.warning("%s: answers again", self.url)
        self.proven, self.answers_others = True, True
        self.failures = self.unreadable = self.trips = 0

    def note_answer(self) -> None:
        """Note an answer."""
        self.prove()
        self.slots = min(self.slots + 1 / self.slots, self.most)

    def note_failure(self, fault: TemporaryError, began: float, now: float) -> None:
        """Close the endpoint, or take fewer slots, after a failed attempt."""
        self.last_fault, self.answers_others = str(fault), False
        logger.info("%s: %s", self.url, fault)
        self.unreadable += fault.kind == "unreadable"
        is_full = fault.kind == "crowded" and self.proven and self.slots > 1
        if is_full and began >= self.halved_at:  # else it was sent before the slots were halved
            self.slots, self.halved_at = max(self.slots / 2, 1.0), now
        if fault.pause_s is not None:
            self.opens_at = max(self.opens_at, now + fault.pause_s)
        elif not is_full and self.opens_at <= now:  # else it was sent before the endpoint closed
            self.failures += 1
            if not self.proven or self.failures >= TRIP_AFTER:
                self._close(fault, now)

    def _close(self, fault: TemporaryError, now: float) -> None:
        self.trips += 1
        self.proven = False
        seconds = COOL_DOWN(_attempt_state(self.trips))
        self.opens_at = max(self.opens_at, now + seconds)
        logger.warning("%s: not used for %.0f s (%s)", self.url, seconds, fault)


class RequestQueue:
    """The endpoints of one model, and the requests that wait for them.

    `attempt` sends a request to an endpoint, `check` sends a short question instead; both raise
    TemporaryError, RefusedError or EngineError.

    `under_way` counts attempts, `resting` requests that wait for their next one. `has_answered`: an
    endpoint has answered a request.
    """

    def __init__(
        self,
        urls: Iterable[str],
        config: EngineConfig,
        key: str | None,
        *,
        attempt: Callable[[ChatRequest, Server], Coroutine[Any, Any, Completion]],
        check: Callable[[ChatRequest, Server], Coroutine[Any, Any, None]],
    ) -> None:
        self._send, self._check = attempt, check
        self.under_way = self.resting = 0
        self.has_answered = False
        self._config = config
        self._waiting: deque[tuple[asyncio.Future[Server], Server | None]] = deque()
        self._failing_since: float | None = None
        self._stopped: str | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.servers = [
            Server(
                url=url,
                most=config.concurrency,
                slots=config.concurrency,
                rate=rate_limit_of(url, key, config.model_name),
            )
            for url in dict.fromkeys(urls)
        ]

    @property
    def slots(self) -> int:
        """How many requests may be in flight at all endpoints."""
        return self._config.concurrency * len(self.servers)

    def configure(self, config: EngineConfig) -> None:
        """Use another concurrency, retry time and other limits from the next attempt on."""
        self._config = config
        for server in self.servers:
            server.resize(config.concurrency)
        self._dispatch()

    async def ask(self, chat: ChatRequest) -> Completion:
        """Return the completion of a request, retried until an endpoint answers it.

        Raises:
            RefusedError: if an endpoint refuses the request, or it is given up.
            EngineError: if the retry time ends, an endpoint refuses every request, or the queue
                stopped.
        """
        history = History()
        while True:
            try:
                return await self._attempt(chat, history)
            except TemporaryError as fault:
                pause_s = _pause_s(fault, history.failures)
            self.resting += 1
            try:
                await asyncio.sleep(pause_s)
            finally:
                self.resting -= 1

    def prove(self, server: Server) -> None:
        """Allow all requests to an endpoint whose model has been checked."""
        if not server.trips:
            server.proven = True
            self._dispatch()

    def stop(self, error: EngineError) -> None:
        """Stop sending; waiting requests raise the error."""
        self._stopped = self._stopped or str(error)
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(EngineError(self._stopped))

    async def _attempt(self, chat: ChatRequest, history: History) -> Completion:
        """Send a request to one endpoint once."""
        server = await self._slot(history)
        used = 0
        booked: Booking | None = None
        try:
            booked = await self._pace(server, chat)
            if server.opens_at > self._now:  # it was closed meanwhile
                raise TemporaryError(server.last_fault, kind="unreachable", pause_s=0.0)
            self.under_way += 1
            try:
                drawn = await self._ask(chat, history, server)
            finally:
                self.under_way -= 1
            used = drawn.prompt_tokens + drawn.completion_tokens
        finally:
            if booked is not None:
                server.rate.settle(booked, used)
            self._release(server)
        return drawn

    async def _ask(self, chat: ChatRequest, history: History, server: Server) -> Completion:
        """Send a request, after a short question if the request may be at fault."""
        began = self._now
        is_strange = not self.has_answered and server.unreadable >= TRIP_AFTER
        checks = is_strange or (history.suspicion >= GIVEN_UP_AT - 1 and not server.answers_others)
        try:
            if checks:
                await self._check(chat, server)
                self._note_answer(server)
                checks = False
            drawn = await self._send(chat, server)
        except TemporaryError as fault:
            if checks and is_strange and fault.kind == "unreadable":
                error = EngineError(
                    f"{server.url}: {fault}; none of its {server.unreadable + 1} replies could be "
                    "read: correct the address, the key or the account"
                )
                self.stop(error)
                raise error from None
            self._fail(server, history, fault, began)
            raise
        except RefusedError:
            self._failing_since = None
            server.prove()
            raise
        except EngineError as error:
            self.stop(error)
            raise
        self._note_answer(server)
        server.note_answer()
        return drawn

    def _note_answer(self, server: Server) -> None:
        self.has_answered, self._failing_since = True, None
        server.prove()

    def _fail(self, server: Server, history: History, fault: TemporaryError, began: float) -> None:
        """Note a failed attempt."""
        others_answered = server.answers_others
        server.note_failure(fault, began, self._now)
        history.failures += 1
        history.avoids = server
        history.suspicion += SUSPICION[fault.kind][0 if others_answered else 1]
        if history.suspicion >= GIVEN_UP_AT and others_answered:
            message = f"{fault}; failed {history.failures} times while others were answered"
            raise RefusedError(message, text="")
        self._failing_since = began if self._failing_since is None else self._failing_since
        opens_at = min(server.opens_at for server in self.servers)
        retry_timeout_s = self._config.retry_timeout_s
        if max(opens_at, self._now) - self._failing_since > retry_timeout_s:
            reasons = "; ".join(f"{server.url}: {server.last_fault}" for server in self.servers)
            error = EngineError(
                f"no endpoint answers within {retry_timeout_s:g} s (engine.retry_timeout_s); "
                f"nothing is lost: resume when they do: {reasons}"
            )
            self.stop(error)
            raise error

    async def _slot(self, history: History) -> Server:
        """Wait for a slot; a retried request comes before new ones."""
        if self._stopped is not None:
            raise EngineError(self._stopped)
        future: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        append = self._waiting.appendleft if history.failures else self._waiting.append
        append((future, history.avoids))
        self._dispatch()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._release(future.result())
            raise

    def _release(self, server: Server) -> None:
        server.in_flight -= 1
        self._dispatch()

    def _dispatch(self) -> None:
        """Give free slots to waiting requests, and wake up when an endpoint opens."""
        now = self._now
        while self._waiting:
            future, avoids = self._waiting[0]
            if not future.done():
                free = [server for server in self.servers if server.has_room(now)]
                if not free:
                    break
                server = min(free, key=lambda s: (s is avoids, not s.proven, s.in_flight))
                server.in_flight += 1
                future.set_result(server)
            self._waiting.popleft()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        closed = [server.opens_at for server in self.servers if server.opens_at > now]
        if self._waiting and closed:
            # Event loops may call a timer a moment early.
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(min(closed) + 1e-3, self._dispatch)

    async def _pace(self, server: Server, chat: ChatRequest) -> "Booking | None":
        """Wait until the configured limits of requests and tokens per minute admit the request."""
        limits = self._limits()
        if limits == (None, None):
            return None
        # Counting takes time, and matters only under a limit.
        tokens = 0 if limits[1] is None else chat.tokens
        async with server.turn:
            while True:
                booked = server.rate.book(*self._limits(), tokens, self._now)
                if isinstance(booked, Booking):
                    return booked
                await asyncio.sleep(booked)

    def _limits(self) -> tuple[int | None, int | None]:
        return self._config.requests_per_minute, self._config.tokens_per_minute

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _pause_s(fault: TemporaryError, failures: int) -> float:
    """Return the pause of a request after a failure; an endpoint that named a time is closed."""
    if fault.pause_s is not None:
        return 0.0
    backoff = UNREADABLE_BACKOFF if fault.kind == "unreadable" else BACKOFF
    return backoff(_attempt_state(failures))


def _attempt_state(number: int) -> RetryCallState:
    """Return a state from which tenacity's functions compute a pause."""
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = number
    return state


@dataclass(slots=True, eq=False)
class Booking:
    """A request that was sent: its time, and the tokens that it counts for."""

    at: float
    tokens: int


class RateLimit:
    """The requests to one endpoint in the last minute, from all engines of this process.

    Requests are spaced evenly. A request counts with its maximal tokens until it is answered,
    then with its actual tokens.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._sent: deque[Booking] = deque()
        self._tokens = 0

    def book(
        self, requests: int | None, tokens: int | None, needed: int, now: float
    ) -> Booking | float:
        """Admit a request of at most `needed` tokens now; else return the seconds to wait.

        `requests` and `tokens` are the limits a minute. A request of more than `tokens` goes alone.
        """
        with self._mutex:
            while self._sent and self._sent[0].at + MINUTE <= now:
                self._tokens -= self._sent.popleft().tokens
            if requests is not None and self._sent:
                wait = self._sent[-1].at + MINUTE / requests - now
                if wait > 0:
                    return wait
            if tokens is not None and self._sent and self._tokens + needed > tokens:
                # An answer within the next second may cost less than was booked for it.
                return min(1.0, self._sent[0].at + MINUTE - now)
            booking = Booking(now, needed)
            self._sent.append(booking)
            self._tokens += needed
            return booking

    def settle(self, booking: Booking, used: int) -> None:
        """Count a request with its actual tokens."""
        with self._mutex:
            if self._sent and booking.at >= self._sent[0].at:
                self._tokens += used - booking.tokens
                booking.tokens = used


_RATE_LIMITS: WeakValueDictionary[Hashable, RateLimit] = WeakValueDictionary()
_MAKING = threading.Lock()


def rate_limit_of(url: str, key: str | None, model: str | None) -> RateLimit:
    """Return the shared rate limit of all engines with this address, key and model."""
    with _MAKING:
        limit = _RATE_LIMITS.get((url, key, model))
        if limit is None:
            _RATE_LIMITS[url, key, model] = limit = RateLimit()
        return limit
