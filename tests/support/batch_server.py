"""An endpoint on loopback that takes batch files, and answers them when it is let."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], str]
Outcome = Callable[[int, dict[str, Any]], int | None]
"""From the number of a file and the body of a line to a status; None: the line expires."""


def said(body: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a chat completion; a token is three letters."""
    read = sum(len(message["content"]) for message in body["messages"]) // 3
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": read, "completion_tokens": len(text) // 3}
    rest = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**rest, "choices": [choice], "usage": usage}


class BatchServer:
    """What it was sent, and how it meets it.

    Batches end once `released` is set. `takes_batches`: whether there are batch files at all.
    `loses_replies`: how many batches are begun without a reply that says so. `ends` is how a batch
    ends in which a line expired.
    """

    def __init__(self, answer: Answer, outcome: Outcome = lambda *_: 200) -> None:
        self.url = ""
        self.released = threading.Event()
        self.released.set()
        self.takes_batches = True
        self.loses_replies = 0
        self.fails: str | None = None
        self.outcome = outcome
        self.direct: list[dict[str, Any]] = []
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.batches: list[dict[str, Any]] = []
        self.on_batch: Callable[[], None] = lambda: None
        self._answer = answer
        self._mutex = threading.Lock()

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and reply; bytes are sent as they are."""
        if path.startswith("models"):
            return 200, {"object": "list", "data": [{"id": "m"}]}
        if not self.takes_batches:
            return 404, {"error": {"message": "no such path"}}
        if found := re.fullmatch(r"batches/(\w+)", path):
            return self._state(found[1])
        if found := re.fullmatch(r"files/(\w+)-(output|error)/content", path):
            return 200, self._output(found[1], found[2])
        listed = list(reversed(self.batches))
        after = re.search(r"after=(\w+)", path)
        if after:
            names = [batch["id"] for batch in listed]
            listed = listed[names.index(after[1]) + 1 :]
        return 200, {"object": "list", "data": listed[:2], "has_more": len(listed) > 2}

    def post(self, path: str, data: bytes) -> tuple[int, Any]:
        """Return status and reply."""
        if path == "chat/completions":
            body = json.loads(data)
            with self._mutex:
                self.direct.append(body)
            return 200, said(body, self._answer(body))
        with self._mutex:
            return self._upload(data) if path == "files" else self._begin(json.loads(data))

    def _upload(self, data: bytes) -> tuple[int, Any]:
        assert b'name="purpose"\r\n\r\nbatch\r\n' in data
        lines = [line for line in data.split(b"\n") if line.startswith(b'{"custom_id"')]
        name = f"file{len(self.files)}"
        self.files[name] = [json.loads(line) for line in lines]
        return 200, {"id": name, "object": "file"}

    def _begin(self, asked: dict[str, Any]) -> tuple[int, Any]:
        assert asked["endpoint"] == "/v1/chat/completions"
        assert asked["completion_window"] == "24h"
        batch = {"id": f"batch{len(self.batches)}", "input_file_id": asked["input_file_id"]}
        self.batches.append(batch)
        self.on_batch()
        if self.loses_replies:
            self.loses_replies -= 1
            return 502, {"error": {"message": "bad gateway"}}
        return 200, batch

    def _state(self, name: str) -> tuple[int, Any]:
        batch = next((b for b in self.batches if b["id"] == name), None)
        if batch is None:
            return 404, {"error": {"message": "no such batch"}}
        if not self.released.is_set():
            return 200, {**batch, "status": "in_progress"}
        if self.fails is not None:
            return 200, {**batch, "status": "failed", "errors": {"data": [{"message": self.fails}]}}
        status = "expired" if None in self._statuses(name) else "completed"
        outputs = {"output_file_id": f"{name}-output", "error_file_id": f"{name}-error"}
        return 200, {**batch, "status": status, **outputs}

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return self.files[next(b["input_file_id"] for b in self.batches if b["id"] == name)]

    def _statuses(self, name: str) -> list[int | None]:
        number = int(name.removeprefix("batch"))
        return [self.outcome(number, line["body"]) for line in self._lines(name)]

    def _output(self, name: str, kind: str) -> bytes:
        """Return one of the files that a batch made, its lines in another order."""
        lines = list[str]()
        for line, status in zip(self._lines(name), self._statuses(name), strict=True):
            if (status == 200) is not (kind == "output"):
                continue
            told: dict[str, Any] = {"custom_id": line["custom_id"]}
            if status is None:
                told |= {"response": None, "error": {"code": "batch_expired"}}
            elif status == 200:
                reply = said(line["body"], self._answer(line["body"]))
                told |= {"response": {"status_code": 200, "body": reply}, "error": None}
            else:
                reply = {"error": {"message": "no", "code": None}}
                told |= {"response": {"status_code": status, "body": reply}, "error": None}
            lines.append(json.dumps(told))
        return "\n".join(reversed(lines)).encode()


@contextmanager
def batching(answer: Answer, outcome: Outcome = lambda *_: 200) -> Iterator[BatchServer]:
    """Serve the model `m`."""
    server = BatchServer(answer, outcome)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(*server.get(self.path.removeprefix("/v1/")))

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            self._say(*server.post(self.path.removeprefix("/v1/"), data))

        def _say(self, status: int, value: Any) -> None:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed is no error of the server."""

    http = Server(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
