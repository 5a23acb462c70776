"""A critic behind an OpenAI-compatible endpoint: a program that compares two final numbers.

It reads what a critic of the paper's templates is asked, so it stands in for an instruct model
where what counts is that a run with an endpoint works, and not how well the critic judges.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "critic"
FINAL = re.compile(r"#### *(-?\d+)")
PART = r"\[{name}\]\n<(text-\w+)>\n(.*?)\n</\1>"
MARK = re.compile(r"VERDICT-\w+")


def verdict(question: str) -> str:
    """Return the reply to a question about a math answer: the comment, the line, the rating."""
    said, known = (_final(question, name) for name in ("Answer", "Reference"))
    rating = 1 if said is not None and said == known else -1
    mark = MARK.search(question)
    told = f"The answer ends in {said}, the reference in {known}. {rating}"
    line = "" if mark is None else f"\n{mark[0]}"
    return f'{told}{line}\n{{"Logical Correctness": {rating}}}'


def _final(question: str, name: str) -> str | None:
    part = re.search(PART.format(name=name), question, re.DOTALL)
    found = FINAL.findall(part[2]) if part else []
    return found[-1] if found else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
        )
        question = asked["messages"][-1]["content"]
        text = verdict(question)
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text},
        }
        tokens = {"prompt_tokens": len(question) // 4, "completion_tokens": len(text) // 4}
        usage = {**tokens, "total_tokens": sum(tokens.values())}
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL}
        self._send({**head, "choices": [choice], "usage": usage})

    def _send(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving_critic(port: int = 0) -> Iterator[str]:
    """Serve the critic on loopback; give its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
