"""Calls to an endpoint of batch files, one after another, each tried until patience ends."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ...configs.schema import EngineConfig
from ..engines.engine import EngineError
from .batch_endpoint import MISSING, BatchEndpoint
from .faults import ATTEMPT_ERRORS, RefusedError, TemporaryError, fault_of
from .openai_engine import CLOSED

T = TypeVar("T")

ATTEMPT_S = 3600.0
"""The deadline of one attempt, which may send or fetch a whole file."""

TURN_S = 0.1
"""How soon a transfer notices that the engine is closed."""


class GoneError(Exception):
    """The endpoint does not know what it is asked about."""


class BatchCalls:
    """What the caller's thread asks of an endpoint; `closed` ends all waiting."""

    def __init__(
        self, endpoint: BatchEndpoint, config: Callable[[], EngineConfig], closed: threading.Event
    ) -> None:
        self.endpoint = endpoint
        self._config = config
        self._closed = closed
        self._loop = asyncio.new_event_loop()

    def __call__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a call gives.

        Raises:
            GoneError: if it asks about what is not there.
            EngineError: if it is refused, or fails until patience ends.
        """
        since: float | None = None
        while True:
            try:
                return self._loop.run_until_complete(self._attempt(ask()))
            except RefusedError as refusal:
                told = f"{self.endpoint.url}: the endpoint refuses a batch file ({refusal})"
                raise EngineError(told) from None
            except TemporaryError as fault:
                now = time.monotonic()
                since = now if since is None else since
                pause = max(fault.pause_s or 0.0, self._config().batch_poll_s)
                if now - since + pause > self._config().patience_s:
                    raise EngineError(
                        f"{self.endpoint.url}: no answer about a batch file within "
                        f"{self._config().patience_s:g} s (engine.patience_s); nothing is lost: "
                        f"resume when the endpoint answers ({fault})"
                    ) from None
                self.rest(pause)

    def rest(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait, at most `until` something is so.

        Raises:
            EngineError: if the engine is closed meanwhile.
        """
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and not until():
            if self._closed.wait(min(left, TURN_S)):
                raise EngineError(CLOSED)

    def end(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self.endpoint.aclose())
        self._loop.close()

    async def _attempt(self, asked: Coroutine[Any, Any, T]) -> T:
        """Ask once.

        Raises:
            TemporaryError, RefusedError, GoneError, EngineError: for every failure.
        """
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._unless_closed(asked)
        except MISSING:
            fault = GoneError()
        except ATTEMPT_ERRORS as error:
            fault = fault_of(self.endpoint.url, error, self.endpoint.key)
        raise fault  # outside: a traceback from within would hold the server's text

    async def _unless_closed(self, asked: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(asked)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TURN_S)
                if self._closed.is_set():
                    raise EngineError(CLOSED)
            return task.result()
        finally:
            task.cancel()
