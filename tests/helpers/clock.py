"""Clocks that stop while any code runs, and jump when all code waits.

No test depends on the speed of the machine or on its load. `VirtualLoop` is an event loop on such
a clock, `Stage` has scripted endpoints on it, `StagedEngine` is a client of them, and `StageClock`
is a clock for runs whose stages overlap in threads.
"""

import asyncio
import json
import queue
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import scripts
from aiohttp.client_proto import ResponseHandler

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine, Stream
from lpfloop.policies.engines.engine import Batch, BatchResult, EngineError, Request, Sampling
from lpfloop.stores.records import Message

_HUNG_S = 60
"""Real seconds without any event after which a test counts as hung."""

_LOOK_S = 0.001
"""Interval in seconds at which the loop checks whether a caller still works."""


class LoopCaller:
    """A thread that feeds the loop, and the queue on which the loop answers it.

    It replaces the thread's `queue.SimpleQueue`. The loop's clock stops while the thread works,
    that is, while it does not wait for that queue.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items = deque[Any]()
        self._waits = False

    @property
    def works(self) -> bool:
        """Whether the thread works."""
        with self._changed:
            return bool(self._items) or not self._waits

    def put(self, item: Any) -> None:
        """Add an item."""
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self, timeout: float | None = None) -> Any:
        """Wait for an item."""
        with self._changed:
            self._waits = True
            self._changed.wait_for(lambda: self._items, timeout)
            self._waits = False
            return self.get_nowait()

    def get_nowait(self) -> Any:
        """Take an item, if any."""
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
            return super().select(_LOOK_S)
        if self._waits():
            events = super().select(_HUNG_S)
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
        """Run it now: a thread would take real time."""
        done = self.create_future()
        done.set_result(func(*args))
        return done

    async def stall(self, client_port: int, seconds: float | None) -> None:
        """Keep the client at `client_port` waiting for so many seconds; None: until it cancels."""
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
    """Return whether a client waits for a reply, or for the rest of one."""
    talk = client.get_protocol()
    assert isinstance(talk, ResponseHandler)
    return talk._waiter is not None or talk.should_close


# OpenAI-compatible endpoints that follow a script, on real sockets


Manner = Literal["whole", "reset", "silent", "cut", "drip", "hang", "endless"]
"""Whole, as a reset, as a closed connection, half, a byte each ten seconds, never, or endlessly."""

DRIP_S = 10.0


@dataclass(frozen=True)
class Reply:
    """Describe how a server handles one request."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    manner: Manner = "whole"


@dataclass(frozen=True)
class Asked:
    """A request that arrived: its time, endpoint, attempt, and reply."""

    at: float
    endpoint: int
    name: str
    attempt: int
    headers: dict[str, str]
    body: Any
    reply: Reply


def as_json(status: int, value: Any, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    body = json.dumps(value).encode()
    return Reply(status, body, {"Content-Type": "application/json", **named})


def answer(text: str) -> Reply:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    rest = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return as_json(200, {**rest, "choices": [choice], "usage": usage})


def failure(status: int, message: str = "no", code: str | None = None, **headers: str) -> Reply:
    error = {"message": message, "type": "x", "code": code}
    return as_json(status, {"error": error}, **headers)


MODELS = as_json(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

Script = Callable[[int, str, int], Reply | None]
"""Map endpoint, name of the request and number of its attempt to a reply; None: a good reply.

The name of a chat completion is the text of its last message; other requests are named by path.
"""


class Stage:
    """A virtual clock, and endpoints on it with a common script."""

    def __init__(self, endpoints: int, script: Script) -> None:
        self.loop = VirtualLoop()
        self.asked: list[Asked] = []
        self._script = script
        self._attempts: dict[str, int] = {}
        self._talks: set[asyncio.Task[Any]] = set()
        self._servers = [
            self.loop.run_until_complete(self._start(place)) for place in range(endpoints)
        ]
        ports = [server.sockets[0].getsockname()[1] for server in self._servers]
        self.urls = tuple(f"http://127.0.0.1:{port}/v1" for port in ports)

    @property
    def posts(self) -> list[Asked]:
        """Requests for chat completions, in order."""
        return [asked for asked in self.asked if not asked.name.startswith("/")]

    def close(self) -> None:
        """Close the servers; the caller must have returned the loop."""
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _start(self, place: int) -> asyncio.Server:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._talks.add(task)
            try:
                while await self._serve(place, reader, writer):
                    pass
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # the client has gone, or the stage is closed
            finally:
                self._talks.discard(task)
                writer.close()

        return await asyncio.start_server(talk, "127.0.0.1", 0)

    async def _serve(
        self, place: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        value = json.loads(body) if body else None
        name = value["messages"][-1]["content"] if value else head[0].split()[1]
        attempt = self._attempts[name] = self._attempts.get(name, -1) + 1
        good = answer(name) if value else MODELS
        reply = self._script(place, name, attempt) or good
        now = self.loop.time()
        self.asked.append(Asked(now, place, name, attempt, headers, value, reply))
        return await self._play(reply, writer)

    async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        """Send a reply; return whether the connection stays open."""
        port = writer.get_extra_info("peername")[1]
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{k}: {v}" for k, v in headers.items())]
        head = "\r\n".join([*lines, "", ""]).encode()
        match reply.manner:
            case "reset":
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case "hang":
                await self.loop.stall(port, None)
            case "cut":
                writer.write(head + reply.body[: len(reply.body) // 2])
            case "drip":
                writer.write(head)
                for byte in reply.body:
                    writer.write(bytes([byte]))
                    await self.loop.stall(port, DRIP_S)
            case "endless":
                writer.write(f"HTTP/1.1 {reply.status} X\r\n\r\n".encode())
                while True:
                    writer.write(b" " * 65536)
                    await writer.drain()
            case "whole":
                writer.write(head + reply.body)
                await writer.drain()
                return True
            case "silent":
                pass
        return False


# a client


class StagedEngine(OpenAIEngine):
    """An engine on a `VirtualLoop`, for one stream at a time.

    The loop runs in a separate thread. Its clock stops while the caller works; otherwise the speed
    of the machine would decide how much happens before the caller adds a batch or takes a result.
    """

    def __init__(self, model: str, config: EngineConfig, *, loop: VirtualLoop) -> None:
        self._callers = loop.callers
        self._caller = LoopCaller()
        super().__init__(model, config, loop=loop)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Sample; until the stream ends, time passes only while the caller waits for a result."""
        self._caller = LoopCaller()
        with self._present():
            yield from super().generate(batches)

    @contextmanager
    def away(self) -> Generator[None]:
        """UnitStats time although the caller waits for nothing."""
        self._callers.discard(self._caller)
        yield
        self._callers.add(self._caller)

    def close(self) -> None:
        """Close the engine, also in the middle of a stream."""
        self._callers.discard(self._caller)
        super().close()

    @contextmanager
    def _present(self) -> Generator[None]:
        caller = self._caller
        self._callers.add(caller)
        try:
            yield
        finally:
            self._callers.discard(caller)

    def _submit(self, batch: Batch, stream: Stream) -> Future[BatchResult]:
        """Add a batch; the loop then sees its caller wait."""
        stream.events = self._caller  # type: ignore[assignment]
        return super()._submit(batch, stream)


_SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=7)
_SLICE = 32


def batches(count: int) -> list[Batch]:
    """Return so many requests, named n0, n1 and so on."""
    requests = [
        Request(request_id=f"n{i}", messages=(Message(role="user", content=f"n{i}"),), seed=i)
        for i in range(count)
    ]
    return [
        Batch(key=str(start), requests=tuple(requests[start : start + _SLICE]), sampling=_SAMPLING)
        for start in range(0, count, _SLICE)
    ]


# runs whose stages overlap


LONG_S = 600
"""Limit of a wait; only a failed test reaches it."""

begun = threading.Event()
released = threading.Event()
held_calls: list[str] = []


def forget_calls() -> None:
    """Forget the calls of earlier tests."""
    begun.clear()
    released.clear()
    held_calls.clear()


def held_policy(request: Request, sampling: Sampling) -> str:
    """Answer sixteen times, then wait for the release."""
    return _held(16, request, sampling)


def _held(free: int, request: Request, sampling: Sampling) -> str:
    held_calls.append("policy")
    begun.set()
    if held_calls.count("policy") > free:
        released.wait(LONG_S)
    return scripts.policy(request, sampling)


def failing_critic(request: Request, sampling: Sampling) -> str:
    """Answer four times."""
    held_calls.append("critic")
    if held_calls.count("critic") == 5:
        raise EngineError("the critic is gone")
    return scripts.clear_critic(request, sampling)


# a clock

_LOOK_S = 0.001
REQUEST_S = 1.0
"""Duration of each answer of a scripted model."""


class StageClock:
    """Virtual seconds; `now` begins at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._mutex = threading.Lock()
        self._wakes: dict[threading.Thread, float] = {}
        self._idle: dict[threading.Thread, int] = {}
        # Threads left by an earlier run.
        self._others = {t for t in threading.enumerate() if t.name.startswith("stage ")}
        self._changes = self._handed = self._settled = 0

    def sleep(self, seconds: float) -> None:
        """Sleep in virtual time."""
        own, naps = threading.current_thread(), threading.Event()
        with self._mutex:
            self._wakes[own] = wake = self.now + seconds
        while self.now < wake:
            with self._mutex:
                if self._stands_still() and wake == min(self._wakes.values()):
                    self.now = wake
            naps.wait(_LOOK_S)
        with self._mutex:
            del self._wakes[own]

    def watch(self, run: Any) -> None:
        """Watch the waits of a run's threads, and the pending writes of its store."""
        run.flow.changed = _WatchedCondition(self)
        store, settled = run.store, run.store.on_settled
        commit = store.commit

        def handed(*args: Any, **options: Any) -> None:
            with self._mutex:
                self._handed += 1
            commit(*args, **options)

        def told(units: Sequence[str]) -> None:
            settled(units)
            with self._mutex:
                self._settled += len(units)

        store.commit, store.on_settled = handed, told

    def waits(self, seen: int) -> None:
        """Mark this thread as waiting since so many changes."""
        with self._mutex:
            self._idle[threading.current_thread()] = seen

    def goes_on(self) -> int:
        """Mark this thread as running; return how many changes it can see."""
        with self._mutex:
            self._idle.pop(threading.current_thread(), None)
            return self._changes

    def changed(self) -> None:
        """Report a change to the waiting threads."""
        with self._mutex:
            self._changes += 1

    def _stands_still(self) -> bool:
        working = {t for t in threading.enumerate() if t.name.startswith(("MainThread", "stage "))}
        idle = {thread for thread, seen in self._idle.items() if seen == self._changes}
        return working - self._others <= idle | self._wakes.keys() and self._handed == self._settled


class _WatchedCondition(threading.Condition):
    def __init__(self, clock: StageClock) -> None:
        super().__init__()
        self._clock = clock
        self._seen = threading.local()

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.waits(getattr(self._seen, "changes", -1))
        try:
            return super().wait(timeout)
        finally:
            self._seen.changes = self._clock.goes_on()

    def notify_all(self) -> None:
        self._clock.changed()
        super().notify_all()


_clocks = [StageClock()]
"""The last one is the clock of the scripts below; each test starts with a new one."""


def begin_clock() -> StageClock:
    """Start a new clock at 0."""
    _clocks.append(StageClock())
    return _clocks[-1]


def clocked_policy(request: Request, sampling: Sampling) -> str:
    """Answer by the seed, a second later."""
    _clocks[-1].sleep(REQUEST_S)
    return scripts.policy(request, sampling)


def clocked_critic(request: Request, sampling: Sampling) -> str:
    """Rate the requested aspects, a second later."""
    _clocks[-1].sleep(REQUEST_S)
    return scripts.clear_critic(request, sampling)
