"""An event loop whose clock stands still while anything happens, and jumps when nothing does.

Sockets are real. While a client of the loop waits for a server, only real events count; time goes
on when every client that waits is known to wait for the clock (see `stall`), or none waits, and no
caller in another thread is about to say something (see `LoopCaller`). So it depends on nothing but
the program: neither on the machine's speed nor on its load.
"""

import asyncio
import queue
import selectors
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp.client_proto import ResponseHandler

HUNG_S = 60
"""Real seconds without any event after which a test has hung."""

LOOK_S = 0.001
"""How often it is looked whether a caller still works."""


class LoopCaller:
    """A thread that feeds the loop, and the queue by which the loop answers it.

    It is a `queue.SimpleQueue` for it. While it works, which is whenever it does not wait for that
    queue, the loop's clock stands.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items = deque[Any]()
        self._waits = False

    @property
    def works(self) -> bool:
        """Whether it has something to do."""
        with self._changed:
            return bool(self._items) or not self._waits

    def put(self, item: Any) -> None:
        """Give it something to do."""
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self, timeout: float | None = None) -> Any:
        """Wait for something to do."""
        with self._changed:
            self._waits = True
            self._changed.wait_for(lambda: self._items, timeout)
            self._waits = False
            return self.get_nowait()

    def get_nowait(self) -> Any:
        """Take something to do, if there is any."""
        with self._changed:
            if not self._items:
                raise queue.Empty
            return self._items.popleft()


class _Selector(selectors.DefaultSelector):
    def __init__(self, waits: Callable[[], bool], works: Callable[[], bool]) -> None:
        super().__init__()
        self.now = 0.0
        self._waits = waits
        self._works = works

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if timeout is None:
            return super().select(None)
        if self._works():
            return super().select(LOOK_S)
        if self._waits():
            events = super().select(HUNG_S)
            assert events, "a client waits for a server that does nothing"
            return events
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, for clients and scripted servers of one test."""

    def __init__(self) -> None:
        self._selector_of_time = _Selector(self._waiting, self._working)
        self.callers = set[LoopCaller]()
        self._connecting = 0
        self._clients: list[asyncio.Transport] = []
        self._stalled: set[int] = set()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        return self._selector_of_time.now

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        self._connecting += 1
        try:
            transport, protocol = await super().create_connection(*args, **options)
        finally:
            self._connecting -= 1
        self._clients.append(transport)
        return transport, protocol

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Run at once: a thread would take real time."""
        done = self.create_future()
        done.set_result(func(*args))
        return done

    async def stall(self, client_port: int, seconds: float | None) -> None:
        """Let a server keep the client at `client_port` waiting; None: until it is cancelled."""
        self._stalled.add(client_port)
        try:
            await (asyncio.Event().wait() if seconds is None else asyncio.sleep(seconds))
        finally:
            self._stalled.discard(client_port)

    def _working(self) -> bool:
        return any(caller.works for caller in [*self.callers])

    def _waiting(self) -> bool:
        self._clients = [client for client in self._clients if not client.is_closing()]
        ports = {c.get_extra_info("sockname")[1] for c in self._clients if _waits(c)}
        return bool(self._connecting or ports - self._stalled)


def _waits(client: asyncio.Transport) -> bool:
    """Whether a client waits for a reply, or for the rest of one."""
    talk = client.get_protocol()
    assert isinstance(talk, ResponseHandler)
    return talk._waiter is not None or talk.should_close
