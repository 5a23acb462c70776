"""Vectors of texts: from an endpoint that may fail, and from a model's hidden states."""

import json
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lpfloop.configs.schema import EmbedderConfig
from lpfloop.policies.endpoint import endpoint_embedder
from lpfloop.policies.endpoint.endpoint_embedder import EndpointEmbedder
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.workers.open import open_embedder

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


def test_an_endpoint_gives_one_vector_a_text_in_order():
    texts = ["a", "abc", "", "ab" * 40]
    with embedding_server([]) as (url, asked), opened(url, batch_size=3, max_tokens=8) as embedder:
        vectors = [array("f", vector).tolist() for vector in embedder.embed(texts)]
    # An empty text is sent as a blank; a long one is cut at 4 characters a token.
    assert vectors == [[1, 1], [3, 1], [1, 1], [32, 1]]
    assert {len(body["input"]) for body in asked} == {1, 3}
    assert {body["model"] for body in asked} == {"m"}


def test_what_is_temporary_is_asked_again(monkeypatch):
    busy = (503, {"error": {"message": "busy"}})
    with embedding_server([busy]) as (url, asked), opened(url) as embedder:
        assert len(embedder.embed(["a"])) == 1
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, {"error": {"message": "no embeddings here"}}), "no embeddings here"),
        ((401, {"error": {"message": "who?"}}), "key"),
    ],
)
def test_what_will_not_change_is_said(answer, said):
    with (
        embedding_server([answer]) as (url, _),
        opened(url) as embedder,
        pytest.raises(EngineError, match=said),
    ):
        embedder.embed(["a"])


@pytest.mark.parametrize("rows", [[], [{"index": 0, "embedding": ["x"]}], "none"])
def test_an_answer_that_is_none_is_not_taken(rows, monkeypatch):
    monkeypatch.setattr(endpoint_embedder, "PATIENCE_S", 0.2)
    bad = [(200, {"object": "list", "model": "m", "data": rows})] * 9
    with (
        embedding_server(bad) as (url, _),
        opened(url) as embedder,
        pytest.raises(EngineError),
    ):
        embedder.embed(["a"])


@pytest.mark.model
def test_hidden_states_depend_on_the_text_alone(tiny_policy, tmp_path):
    config = EmbedderConfig(kind="policy", batch_size=2, max_tokens=16)
    embedder = open_embedder(str(tiny_policy), config, log=tmp_path / "log")
    texts = ["Name the capital.", "", "How many apples are left?", "x " * 400, "Name the capital."]
    try:
        vectors = [array("f", vector) for vector in embedder.embed(texts)]
        (alone,) = embedder.embed([texts[0]])
    finally:
        embedder.close()
    assert {len(vector) for vector in vectors} == {128}
    assert list(vectors[0]) == pytest.approx(list(vectors[4]), abs=1e-4)
    assert list(vectors[0]) == pytest.approx(list(array("f", alone)), abs=1e-4)
    assert list(vectors[0]) != pytest.approx(list(vectors[2]), abs=1e-2)
