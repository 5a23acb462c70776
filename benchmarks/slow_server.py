"""An OpenAI-compatible server in a process of its own, which costs little and answers after a time.

It stands in for a hosted judge where what is measured is the client: it parses no JSON, and its
answers rate every aspect that a critic may be asked for.

    python benchmarks/slow_server.py --latency 0.25
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
MARK = re.compile(rb"VERDICT-[0-9a-f]{16}")
COMMENT = "The answer does what was asked for, and says why; one step is left out. "
MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}
HEAD = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 400, "completion_tokens": 90, "total_tokens": 490}


def chat_completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        **HEAD,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": USAGE,
    }


def reply(text: str) -> bytes:
    """Return a critique of every aspect as an answer over HTTP; `MARK` stands for the mark."""
    body = json.dumps(chat_completion(text)).encode()
    return _http(body)


def _http(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class Judge(asyncio.Protocol):
    """One connection: each chat completion is answered after `latency`, `slots` at a time."""

    def __init__(self, latency: float, slots: "Slots", text: str) -> None:
        self._latency = latency
        self._slots = slots
        self._text = text
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self._received, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._received) < whole:
                return
            request, self._received = self._received[:whole], self._received[whole:]
            if request.startswith(b"GET"):
                self._transport.write(_http(json.dumps(MODELS).encode()))
            else:
                self._slots.answer_after(self._latency, lambda r=request: self._say(r))

    def _say(self, request: bytes) -> None:
        mark = MARK.search(request)
        line = "" if mark is None else f"{mark[0].decode()}\n"
        self._transport.write(reply(self._text.format(mark=line)))


class Slots:
    """How many requests are worked on at once; the others wait, as at a full server."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Any] = deque()

    def answer_after(self, latency: float, say: Any) -> None:
        self._waiting.append((latency, say))
        self._begin()

    def _begin(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            latency, say = self._waiting.popleft()
            asyncio.get_running_loop().call_later(latency, self._end, say)

    def _end(self, say: Any) -> None:
        self._free += 1
        say()
        self._begin()


def critique_text(aspects: list[str]) -> str:
    ratings = ", ".join(f'"{name}": 1' for name in aspects)
    return COMMENT * 6 + "\n{mark}{{" + ratings + "}}"


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    slots, text = Slots(options.slots), critique_text(options.aspects.split(","))
    server = await loop.create_server(
        lambda: Judge(options.latency, slots, text), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving(latency: float, *, slots: int = 100_000, aspects: str = "Factuality") -> Iterator[str]:
    """Start a server; give its URL."""
    command = [sys.executable, __file__, f"--latency={latency}", f"--slots={slots}"]
    with subprocess.Popen(
        [*command, f"--aspects={aspects}"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency", type=float, default=0.25, help="seconds to each answer")
    parser.add_argument("--slots", type=int, default=100_000, help="requests worked on at once")
    parser.add_argument("--aspects", default="Factuality", help="what answers rate, by commas")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
