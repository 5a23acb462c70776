"""Vectors of texts from an endpoint that may fail."""

import json
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lpfloop.configs.schema import EmbedderConfig
from lpfloop.policies.endpoint.endpoint_embedder import EndpointEmbedder

Answers = list[tuple[int, object]]


@contextmanager
def embedding_server(first: Answers) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Serve embeddings whose first number is the text's length; the first answers are given."""
    asked: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            if first:
                self.answer(*first.pop(0))
                return
            rows = [
                {"object": "embedding", "index": i, "embedding": [float(len(text)), 1.0]}
                for i, text in enumerate(body["input"])
            ]
            self.answer(200, {"object": "list", "model": "m", "data": rows[::-1]})

        def answer(self, status, value):
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def opened(url: str, **settings):
    embedder = EndpointEmbedder(url, EmbedderConfig(kind="endpoint", **settings))
    try:
        yield embedder
    finally:
        embedder.close()


def test_vectors_in_order(monkeypatch):
    monkeypatch.setattr(EmbedderConfig, "batch_size", 3)
    texts = ["a", "abc", "", "ab" * 40]
    with embedding_server([]) as (url, asked), opened(url, max_tokens=8) as embedder:
        vectors = [array("f", vector).tolist() for vector in embedder.embed(texts)]
    # An empty text is sent as a blank; a long one is cut at 4 characters a token.
    assert vectors == [[1, 1], [3, 1], [1, 1], [32, 1]]
    assert {len(body["input"]) for body in asked} == {1, 3}
    assert {body["model"] for body in asked} == {"m"}


def test_asked_again():
    busy = (503, {"error": {"message": "busy"}})
    with embedding_server([busy]) as (url, asked), opened(url) as embedder:
        assert len(embedder.embed(["a"])) == 1
    assert len(asked) == 2
