"""An OpenAI-compatible server in a separate process, which costs little and answers after a delay.

It replaces a hosted judge in benchmarks of the client: it parses no JSON, and its answers rate
every aspect that a critic may request.

    python benchmarks/slow_server.py --latency 0.25
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
MARK = re.compile(rb"VERDICT-[0-9a-f]{16}")
ANNOTATED = "#### Output for Text {number}\nType: 1\nRationale: {why}\nRating: 4\nRationale: {why}"
"""The reply about one text without a schema, in the format of distilabel's `UltraFeedback`."""
COMMENT = "The answer does what was asked for, and says why; one step is left out. "
MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}
HEAD = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
SEEN = b"/seen "
"""Path of the GET request for the counts of requests and answers."""
USAGE = {"prompt_tokens": 400, "completion_tokens": 90, "total_tokens": 490}


def chat_completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        **HEAD,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": USAGE,
    }


def reply(text: str) -> bytes:
    """Return an answer over HTTP."""
    body = json.dumps(chat_completion(text)).encode()
    return _http(body)


def _http(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Answers:
    """The replies of a judge: an object's fields for a request with a mark, a text for others."""

    marked: Callable[[bytes], Mapping[str, Any]]
    unmarked: str

    def to(self, request: bytes) -> str:
        """Return the answer to a request."""
        mark = MARK.search(request)
        if mark is None:
            return self.unmarked
        return json.dumps({"verdict_mark": mark[0].decode(), **self.marked(request)})


class Judge(asyncio.Protocol):
    """One connection: it answers each chat completion after `latency`, `slots` at a time."""

    def __init__(self, latency: float, slots: "Slots", answers: Answers) -> None:
        self._latency = latency
        self._slots = slots
        self._answers = answers
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
                told = self._slots.seen.taken() if SEEN in request[:end] else MODELS
                self._transport.write(_http(json.dumps(told).encode()))
            else:
                self._slots.seen.ask(len(request) - end - 4)
                self._slots.answer_after(self._latency, lambda r=request: self._say(r))

    def _say(self, request: bytes) -> None:
        self._transport.write(reply(self._answers.to(request)))


class Seen:
    """Counts of requests and answers since the last look, and their times."""

    def __init__(self) -> None:
        self._first = self._last = 0.0
        self._answers = self._bytes = 0

    def ask(self, size: int) -> None:
        """Count a question of so many bytes."""
        self._first = self._first or time.monotonic()
        self._bytes += size

    def answer(self) -> None:
        """Count an answer."""
        self._answers += 1
        self._last = time.monotonic()

    def taken(self) -> dict[str, float]:
        """Return the counts, and reset them."""
        told = {"answers": self._answers, "bytes": self._bytes}
        told |= {"first": self._first, "last": self._last}
        self.__init__()
        return told


class Slots:
    """The number of concurrent requests; the others wait, as at a full server."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Any] = deque()
        self.seen = Seen()

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
        self.seen.answer()
        say()
        self._begin()


def critiques(aspects: Sequence[str]) -> Answers:
    """Return critiques that rate every aspect."""
    rated = {name: {"comment": COMMENT * 6, "rating": 1} for name in aspects}
    return Answers(lambda _: rated, f"{COMMENT * 6}\n{json.dumps(dict.fromkeys(aspects, 1))}")


def grades(count: int) -> Answers:
    """Return grades of so many texts in one aspect."""
    why = COMMENT.strip()
    rated = {"rationale": why, "rating": 4}
    typed = {"types": [], "type_rationale": why, **rated}

    def graded(request: bytes) -> Mapping[str, Any]:
        return {"texts": [typed if b"type_rationale" in request else rated] * count}

    said = (ANNOTATED.format(number=number, why=why) for number in range(1, count + 1))
    return Answers(graded, "\n\n".join(said))


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    slots = Slots(options.slots)
    answers = grades(options.texts) if options.texts else critiques(options.aspects.split(","))
    server = await loop.create_server(
        lambda: Judge(options.latency, slots, answers), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving(
    latency: float, *, slots: int = 100_000, aspects: str = "Factuality", texts: int = 0
) -> Iterator[str]:
    """Start a server; yield its URL. It critiques one text, or grades so many `texts` together."""
    command = [sys.executable, __file__, f"--latency={latency}", f"--slots={slots}"]
    with subprocess.Popen(
        [*command, f"--aspects={aspects}", f"--texts={texts}"], stdout=subprocess.PIPE, text=True
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
    parser.add_argument("--texts", type=int, default=0, help="texts that an answer grades instead")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
