"""The one policy by which requests are retried.

Temporary failures are waited out while patience lasts, each attempt at the next endpoint. An
endpoint that names a time is not asked earlier (see `traffic`); otherwise the pause is exponential
with jitter, and begins short where the endpoint did answer, only not with a completion. A request
that fails repeatedly while others are answered is given up: it may be what breaks the server.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from .faults import RefusedError, TemporaryError
from .traffic import Passage, Patience, Traffic

T = TypeVar("T")

SUSPICIOUS = 8
"""Suspect failures after which a request is given up, if others were answered meanwhile."""

GARBLED_SUSPICION = 0.5
"""What a garbled answer counts for: it says less against its request than a lost connection, and
half of a bad proxy's answers are garbled.
"""

BACKOFF_S = 1.0
GARBLED_BACKOFF_S = 0.125
LONGEST_BACKOFF_S = 30.0


class Trial:
    """The attempts at one request, and their failures."""

    def __init__(self, traffic: Traffic, turn: int, patience_s: float) -> None:
        self._traffic = traffic
        self._turn = turn
        self._attempts = 0
        self._failures = 0
        self._suspect = 0.0
        self._answers_before = traffic.answers
        self._patience = Patience(patience_s, asyncio.get_running_loop().time())

    async def run(self, attempt: Callable[[Passage], Awaitable[T]]) -> T:
        """Call `attempt` until it succeeds; return its result.

        Raises:
            RefusedError: when this request alone cannot be answered.
            EngineError: when the engine was stopped, or patience has ended.
        """
        policy = AsyncRetrying(
            retry=retry_if_exception_type(TemporaryError),
            wait=self._pause,
            stop=self._over,
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            return await policy(self._attempt, attempt)
        except TemporaryError as fault:
            if self._guilty:
                told = f"{fault}; failed {self._failures} times while others were answered"
                raise RefusedError(told, told="") from None
        raise self._traffic.out_of_patience(self._patience)

    async def _attempt(self, attempt: Callable[[Passage], Awaitable[T]]) -> T:
        turn = self._turn + self._attempts
        self._attempts += 1
        async with self._traffic.passage(turn, self._patience) as passage:
            return await attempt(passage)

    def _pause(self, state: RetryCallState) -> float:
        """Return this request's pause in seconds; 0 if the endpoint's gate sets the time."""
        fault = state.outcome.exception() if state.outcome else None
        if not isinstance(fault, TemporaryError) or fault.pause_s is not None:
            return 0.0
        self._failures += 1
        self._suspect += fault.suspect * (GARBLED_SUSPICION if fault.garbled else 1.0)
        first = GARBLED_BACKOFF_S if fault.garbled else BACKOFF_S
        pause = first * 2.0 ** min(self._failures - 1, 10)
        return random.uniform(0.5, 1.0) * min(pause, LONGEST_BACKOFF_S)

    def _over(self, state: RetryCallState) -> bool:
        now = asyncio.get_running_loop().time()
        return self._guilty or state.upcoming_sleep > self._patience.left(now)

    @property
    def _guilty(self) -> bool:
        return self._suspect >= SUSPICIOUS and self._traffic.answers > self._answers_before
