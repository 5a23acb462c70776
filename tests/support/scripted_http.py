"""OpenAI-compatible endpoints that misbehave by a script, on real sockets and a virtual clock."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from virtual import VirtualLoop

Manner = Literal["whole", "reset", "silent", "cut", "drip", "hang", "endless"]
"""How a reply comes: whole, as a reset, as a closed connection, half of it, one byte each ten
seconds, never, or without end.
"""

DRIP_S = 10.0


@dataclass(frozen=True)
class Reply:
    """What a server does with one request."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    manner: Manner = "whole"


@dataclass(frozen=True)
class Asked:
    """One request that arrived: when, where, the how-manyeth of its name, and how it was met."""

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
"""From endpoint, name of the request and number of its attempt to a reply; None: a good one.

The name of a chat completion is the text of its last message, that of anything else its path.
"""


class Stage:
    """A virtual clock, and endpoints on it that follow one script."""

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
        """The chat completions that were asked for."""
        return [asked for asked in self.asked if not asked.name.startswith("/")]

    def close(self) -> None:
        """End the servers; the loop must have been given back."""
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
        """Send a reply; return whether the connection goes on."""
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
