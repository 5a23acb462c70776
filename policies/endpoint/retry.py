"""The one policy by which requests are retried.

Temporary failures are waited out while patience lasts, each attempt at another endpoint if there is
one. An endpoint that names a time is not asked earlier (see `gate`); otherwise the pause is
exponential with jitter, and begins short where the endpoint did answer, only not with a completion.
A request that fails repeatedly while others are answered is given up: it may be what breaks the
server. If no other request was answered since it last failed, a short question is asked first:
without an answer to that one, the endpoint is down, and no request is given up.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..engines.engine import EngineError
from .faults import RefusedError, TemporaryError
from .gate import Gate, Passage

T = TypeVar("T")

SUSPICIOUS = 8
"""Suspect failures after which a request is given up, if others are answered."""

GARBLED_SUSPICION = 0.5
"""What a garbled answer counts for: it says less against its request than a lost connection, and
half of a bad proxy's answers are garbled.
"""

BACKOFF_S = 1.0
GARBLED_BACKOFF_S = 0.125
LONGEST_BACKOFF_S = 30.0
LONGEST_GARBLED_BACKOFF_S = 4.0


@dataclass(slots=True)
class Patience:
    """How long endpoints may keep one request waiting; time in our own queue does not count."""

    seconds: float
    began: float
    queued: float = 0.0

    def left(self, now: float) -> float:
        """Return the seconds that are left at `now`."""
        return self.seconds - (now - self.began - self.queued)


@dataclass(frozen=True, slots=True)
class Errand(Generic[T]):
    """What is asked of any endpoint: an attempt, and what becomes of it if it is refused.

    `begun` is called when it leaves the queue for the first time. It may cost `tokens`, and `used`
    tells from its result how many it did. `check` asks the endpoint a short question, and raises
    what `attempt` would if that is not answered.
    """

    attempt: Callable[[Passage], Coroutine[Any, Any, T]]
    refused: Callable[[RefusedError], T]
    check: Callable[[Passage], Coroutine[Any, Any, None]] | None = None
    begun: Callable[[], None] = lambda: None
    tokens: int = 0
    used: Callable[[T], int] = lambda _: 0


class Trial(Generic[T]):
    """The attempts at one errand, and their failures; `result` is what comes of it.

    `joined` is when it began to wait in the queue, by the clock of open gates; `avoids` is where it
    failed last. `checks`: the latest attempt did not get beyond the short question; `has_checked`:
    it did, as that was answered. Whoever cancels the result ends what is under way.
    """

    def __init__(self, errand: Errand[T], patience_s: float, answers: int) -> None:
        loop = asyncio.get_running_loop()
        self.errand = errand
        self.result: asyncio.Future[T] = loop.create_future()
        self.result.add_done_callback(self._end)
        self.patience = Patience(patience_s, loop.time())
        self.joined = 0.0
        self.avoids: Gate | None = None
        self.begun = False
        self.waits_for: asyncio.TimerHandle | asyncio.Task[T] | None = None
        self.checks = False
        self.failures = 0
        self._suspect = 0.0
        self._answers = answers
        self.has_checked = False

    def give(self, drawn: T) -> None:
        """Settle, unless nobody waits any more."""
        if not self.result.done():
            self.result.set_result(drawn)

    def fail(self, error: BaseException) -> None:
        """Settle with an error, unless nobody waits any more."""
        if not self.result.done():
            self.result.set_exception(error)

    def refuse(self, refusal: RefusedError) -> None:
        """Settle with what the errand makes of its refusal."""
        try:
            self.give(self.errand.refused(refusal))
        except EngineError as error:
            self.fail(error)

    def pause_after(self, fault: TemporaryError) -> float:
        """Return the pause in seconds before the next attempt; 0 if a gate sets the time."""
        if fault.pause_s is not None:
            return 0.0
        self.failures += 1
        self._suspect += fault.suspect * (GARBLED_SUSPICION if fault.garbled else 1.0)
        first = GARBLED_BACKOFF_S if fault.garbled else BACKOFF_S
        longest = LONGEST_GARBLED_BACKOFF_S if fault.garbled else LONGEST_BACKOFF_S
        pause = first * 2.0 ** min(self.failures - 1, 10)
        return random.uniform(0.5, 1.0) * min(pause, longest)

    async def attempt(self, passage: Passage, *, check: bool) -> T:
        """Ask once, after the short question if `check`.

        Raises: as the errand's attempt and check.
        """
        self.checks = check and self.errand.check is not None
        if check and self.errand.check is not None:
            await self.errand.check(passage)
            self.checks, self.has_checked = False, True
        return await self.errand.attempt(passage)

    def is_doubtful(self, answers: int) -> bool:
        """Whether it is given up after another failure, if others are answered: `answers` so far.

        Another request that was answered since it last failed makes the short question needless.
        """
        return self._suspect >= SUSPICIOUS - 1 and answers == self._answers

    def is_guilty(self, answers: int) -> bool:
        """Whether it is itself what fails, after a failure that is noted."""
        others_answered = answers > self._answers or self.has_checked
        self._answers, self.has_checked = answers, False
        return self._suspect >= SUSPICIOUS and others_answered

    def given_up(self, fault: TemporaryError) -> RefusedError:
        """Return the refusal of what is guilty."""
        told = f"{fault}; failed {self.failures} times while others were answered"
        return RefusedError(told, told="")

    def _end(self, _: object) -> None:
        if self.waits_for is not None:
            self.waits_for.cancel()
