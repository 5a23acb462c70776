"""An OpenAI-compatible endpoint on loopback that answers by a function of the messages."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def answering(
    script: Callable[[list[dict[str, str]]], str],
    tokens: Callable[[str, str], tuple[int, int]] = lambda *_: (5, 3),
    names: Sequence[str] = ("m",),
) -> Iterator[str]:
    """Serve models of these names, which report `tokens` read and said; give the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({"object": "list", "data": [{"id": name} for name in names]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = script(body["messages"])
            read = "".join(message["content"] for message in body["messages"])
            asked, drawn = tokens(read, said)
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {
                "prompt_tokens": asked,
                "completion_tokens": drawn,
                "total_tokens": asked + drawn,
            }
            rest = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
            self._say({**rest, "choices": [choice], "usage": usage})

        def _say(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
