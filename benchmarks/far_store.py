"""Simulate a distant S3 server: delay each request, and count requests and bytes.

A server on the same machine answers in less than a millisecond and so hides the largest costs of a
real one: the number of requests, and of requests that wait for the answer to another.
"""

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")
LISTS = re.compile(rb"[?&](list-type|prefix)=")
BLOCK = 256 * 1024


@dataclass
class Passed:
    """Traffic: requests by kind, bytes in each direction.

    `rounds` counts requests that started after all earlier answers had arrived: each of them adds
    the latency once.
    """

    requests: Counter[str] = field(default_factory=Counter[str])
    rounds: int = 0
    up: int = 0
    down: int = 0


class FarStore:
    """A proxy before the server at `endpoint`; it delays each request by `latency_s`."""

    def __init__(self, endpoint: str) -> None:
        target = urlsplit(endpoint)
        self._target = (target.hostname or "", target.port or 80)
        self.endpoint = ""
        self.latency_s = 0.0
        self.passed = Passed()
        self._arrived = 0.0

    async def serve(self, started: threading.Event, ending: asyncio.Event) -> None:
        """Forward connections until `ending` is set."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=BLOCK)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await ending.wait()

    async def _connected(self, here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        answers, on = await asyncio.open_connection(*self._target, limit=BLOCK)
        try:
            await asyncio.gather(self._asks(here, on), self._answers(answers, back))
        except (ConnectionError, asyncio.CancelledError):
            pass  # One side left, or the proxy ends: close the other side's connection, too.
        finally:
            back.close()
            on.close()

    async def _asks(self, here: asyncio.StreamReader, on: asyncio.StreamWriter) -> None:
        while data := await here.read(BLOCK):
            self.passed.up += len(data)
            if asked := REQUEST.match(data):
                self.passed.requests[_kind(asked)] += 1
                self._count_round()
                await asyncio.sleep(self.latency_s)
            on.write(data)
            await on.drain()
        on.close()

    def _count_round(self) -> None:
        now = time.monotonic()
        if now >= self._arrived:
            self.passed.rounds += 1
            self._arrived = now + self.latency_s

    async def _answers(self, answers: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while data := await answers.read(BLOCK):
            self.passed.down += len(data)
            back.write(data)
            await back.drain()
        back.close()


def _kind(asked: re.Match[bytes]) -> str:
    return "LIST" if asked[1] == b"GET" and LISTS.search(asked[2]) else asked[1].decode()


@contextmanager
def far_store(endpoint: str) -> Generator[FarStore]:
    """Start the proxy, in a thread of this process."""
    store, started = FarStore(endpoint), threading.Event()
    loops = list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def serve() -> None:
        ending = asyncio.Event()
        loops.append((asyncio.get_running_loop(), ending))
        await store.serve(started, ending)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait()
    try:
        yield store
    finally:
        ((loop, ending),) = loops
        loop.call_soon_threadsafe(ending.set)
        thread.join()
