"""The batches of one call of `generate`: what of them waits, and what is finished, across threads.

The caller's thread adds batches and takes those that are finished; the event loop's thread counts
the requests that begin and end. A batch waits for its slowest request, and the next one begins
meanwhile, as far as `Traffic.at_hand` allows: what is answered and not given back is paid for again
if the process is killed.
"""

import asyncio
import queue
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future

from ..engines.engine import BatchResult, Request
from .traffic import Traffic

POLL_S = 0.02
"""How often a source is asked that has nothing yet."""


class Stream:
    """The batches of one caller that are not finished."""

    def __init__(self, traffic: Traffic) -> None:
        self.batches = set[Future[BatchResult]]()
        self._traffic = traffic
        self._added = self._begun = self._settled = 0
        self._asked = self._taken = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._sleeps = False
        self._events: queue.SimpleQueue[Future[BatchResult] | None] = queue.SimpleQueue()

    def add(self, batch: Future[BatchResult], size: int) -> None:
        """Take in a batch of so many requests."""
        self._added += size
        self.batches.add(batch)
        batch.add_done_callback(self._events.put)

    def has_room(self) -> bool:
        """Whether more should be added; once that changes, `next` returns."""
        self._sleeps = True
        return self._is_short

    def next(self, timeout: float | None) -> Future[BatchResult] | None:
        """Return a finished batch; None if there is none in time, or there is room meanwhile."""
        if not self.batches:
            return None
        try:
            batch = self._events.get_nowait() if timeout == 0 else self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if batch is not None:
            self.batches.discard(batch)
        return batch

    def cancel(self) -> None:
        """End what is not finished."""
        for batch in self.batches:
            batch.cancel()

    async def admit(self, requests: Sequence[Request]) -> AsyncIterator[Request]:
        """Give each request of a batch once it may be asked, those of earlier batches first.

        All but the last batch that has begun are asked whole, so some can always be given back.
        """
        async with self._turn:
            for request in requests:
                while self._asked - self._taken >= self._traffic.at_hand + len(requests):
                    self._freed.clear()
                    await self._freed.wait()
                self._asked += 1
                yield request

    def free(self, size: int) -> None:
        """Note that the caller is done with a batch of so many requests."""
        self._taken += size
        self._freed.set()

    def begin(self) -> None:
        """Note that a request leaves the queue."""
        self._begun += 1
        self._wake()

    def settle(self, _: object) -> None:
        """Note that a request is answered."""
        self._settled += 1
        self._freed.set()  # more may be at hand now that more is known of the endpoints
        self._wake()

    @property
    def _is_short(self) -> bool:
        ahead, most = self._traffic.ahead, self._traffic.most
        return self._added - self._begun < ahead and self._added - self._settled < ahead + most

    def _wake(self) -> None:
        if self._sleeps and self._is_short:
            self._sleeps = False
            self._events.put(None)
