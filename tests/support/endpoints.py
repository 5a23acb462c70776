"""An OpenAI-compatible endpoint on loopback that answers by a function of the messages."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

MARK = re.compile(r'"verdict_mark" with the text (VERDICT-[0-9a-f]{16})')
REFUSAL = {"error": {"message": "This response_format type is unavailable now", "type": "x"}}
Schemas = Literal["ignored", "kept", "refused"]
"""What an endpoint does with a `response_format`."""


def conforming(schema: Any, text: str) -> Any:
    """Return a value that a schema allows: the last of its choices, and `text` where any may be."""
    match schema:
        case {"enum": [*_, last]}:
            return last
        case {"anyOf": [first, *_]}:
            return conforming(first, text)
        case {"type": "object", "properties": fields}:
            return {name: conforming(one, text) for name, one in fields.items()}
        case _:
            return text


@contextmanager
def answering(
    script: Callable[[list[dict[str, str]]], str],
    tokens: Callable[[str, str], tuple[int, int]] = lambda *_: (5, 3),
    names: Sequence[str] = ("m",),
    schemas: Schemas = "ignored",
) -> Iterator[str]:
    """Serve models of these names, which report `tokens` read and said; give the URL.

    Where schemas are kept, what the script says becomes the reasons of an object.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({"object": "list", "data": [{"id": name} for name in names]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            form = body.get("response_format")
            if form is not None and schemas == "refused":
                self._say(REFUSAL, 400)
                return
            said = script(body["messages"])
            if form is not None and schemas == "kept":
                mark = MARK.search(body["messages"][-1]["content"])
                told = conforming(form["json_schema"]["schema"], said)
                said = json.dumps(told if mark is None else told | {"verdict_mark": mark[1]})
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

        def _say(self, value: Any, status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
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
