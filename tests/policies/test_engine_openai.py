"""Endpoints that misbehave: a refusal is one sentence, pauses end, the key stays ours."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies import openai_engine
from lpfloop.policies.engine import Batch, EngineError, Request, Sampling
from lpfloop.policies.openai_engine import OpenAIEngine, addresses, probe
from lpfloop.stores.records import Message

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=7)
SEED = 2**53 - 1


class Endpoint:
    """A server on loopback: plays a list of replies, then answers well; keeps what it is sent."""

    def __init__(self) -> None:
        self.models: tuple[int, Any] = (200, {"object": "list", "data": [{"id": "m"}]})
        self.replies: list[tuple[int, Any, dict[str, str]]] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # a client that waits no longer
                    super().handle()

            def do_GET(self) -> None:
                endpoint.keys.add(self.headers["Authorization"])
                self.reply(*endpoint.models, {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.bodies.append(body)
                self.reply(*(endpoint.replies.pop(0) if endpoint.replies else answer(body)))

            def reply(self, status: int, body: Any, headers: dict[str, str]) -> None:
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                kind = "text/html" if isinstance(body, str) else "application/json"
                self.send_response(status)
                for name, value in {"Content-Type": kind, **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def answer(body: dict[str, Any], text: str | None = None) -> tuple[int, Any, dict[str, str]]:
    tokens = [{"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * 3
    logprobs = {"content": tokens, "refusal": None} if body.get("logprobs") else None
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "logprobs": logprobs,
        "message": {"role": "assistant", "content": text or body["messages"][-1]["content"]},
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    rest = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return 200, {**rest, "choices": [choice], "usage": usage}, {}


def refusal(message: str) -> tuple[int, Any, dict[str, str]]:
    return 400, {"error": {"message": message, "type": "BadRequestError", "code": 400}}, {}


def failure(status: int, headers: dict[str, str] | None = None) -> tuple[int, Any, dict[str, str]]:
    return status, {"error": {"message": "no", "type": "x", "code": None}}, headers or {}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.close()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace every pause by none; return the pauses that were asked for."""
    asked: list[float] = []
    real = openai_engine.pause

    def remember(state: Any) -> float:
        asked.append(real(state))
        return 0.0

    monkeypatch.setattr(openai_engine, "pause", remember)
    return asked


def draw(endpoint: Endpoint, n: int = 1, **config: Any) -> list[Any]:
    engine = OpenAIEngine(endpoint.url, EngineConfig(**config))
    message = (Message(role="user", content="hello"),)
    requests = tuple(Request(request_id=str(i), messages=message, seed=SEED) for i in range(n))
    try:
        [result] = engine.generate([Batch(key="k", requests=requests)], SAMPLING)
    finally:
        engine.close()
    return list(result.completions)


def test_what_is_sent_and_what_is_read(endpoint: Endpoint) -> None:
    [drawn] = draw(endpoint, api_key="made-up")
    [sent] = endpoint.bodies
    assert sent == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": SEED,
        "max_completion_tokens": 7,
        "logprobs": True,
    }
    assert (drawn.text, drawn.prompt_tokens, drawn.completion_tokens) == ("hello", 5, 3)
    assert drawn.logprob == pytest.approx(-1.5)
    assert endpoint.keys == {"Bearer made-up"}


def test_the_key_may_come_from_the_environment_and_no_other_programs_key_is_sent(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another program's")
    draw(endpoint)
    assert endpoint.keys == {"Bearer none"}
    monkeypatch.setenv("LPFLOOP_API_KEY", "ours")
    draw(endpoint)
    assert endpoint.keys == {"Bearer none", "Bearer ours"}


def test_vllm_gets_the_fields_that_its_models_files_could_set(endpoint: Endpoint) -> None:
    endpoint.models = (200, {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]})
    draw(endpoint)
    [sent] = endpoint.bodies
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (0, 0.0, 1.0)


def test_what_is_temporary_is_waited_out(endpoint: Endpoint, no_pauses: list[float]) -> None:
    waits = ("3", "0", "-5", "1e9", "soon", "Wed, 21 Oct 2026 07:28:00 GMT")
    endpoint.replies = [failure(429, {"Retry-After": wait}) for wait in waits] + [failure(503)]
    [drawn] = draw(endpoint)
    assert drawn.text == "hello"
    assert no_pauses[0] == 3.0
    assert no_pauses[1] == 0.0
    assert no_pauses[3] == openai_engine.LONGEST_WAIT_S
    assert all(0 <= wait <= openai_engine.LONGEST_WAIT_S for wait in no_pauses)
    assert len({json.dumps(body) for body in endpoint.bodies}) == 1


def test_patience_ends(endpoint: Endpoint, no_pauses: list[float]) -> None:
    endpoint.replies = [failure(503)] * 100
    with pytest.raises(EngineError, match="HTTP 503"):
        draw(endpoint)
    assert len(endpoint.bodies) == openai_engine.ATTEMPTS


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(401, "refuses the API key"), (403, "refuses the API key"), (404, "nothing there")],
)
def test_what_will_not_change_is_told_at_once(
    endpoint: Endpoint, status: int, sentence: str
) -> None:
    endpoint.replies = [failure(status)]
    with pytest.raises(EngineError, match=sentence) as caught:
        draw(endpoint, api_key="made-up")
    assert len(endpoint.bodies) == 1
    assert endpoint.url in str(caught.value)
    assert "made-up" not in str(caught.value)


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ((401, {}), "refuses the API key"),
        ((404, {}), "nothing there"),
        ((307, {}), "redirects"),
        ((500, {}), "refuses"),
        ((200, "<html>welcome</html>"), "not that of an OpenAI-compatible endpoint"),
        ((200, {"data": []}), "it serves none"),
        ((200, {"data": [{"id": "a"}, {"id": "b"}]}), "it serves a, b; set engine.model_name"),
    ],
)
def test_a_probe_names_the_cause(
    endpoint: Endpoint, models: tuple[int, Any], sentence: str
) -> None:
    endpoint.models = models
    with pytest.raises(EngineError, match=sentence):
        probe(f"{endpoint.url}/v1", "made-up")


def test_a_probe_of_nobody() -> None:
    with pytest.raises(EngineError, match="can not be reached"):
        probe("http://127.0.0.1:9/v1", None)


def test_no_endpoint_at_all() -> None:
    with pytest.raises(EngineError, match="is no endpoint"):
        addresses("model", EngineConfig())
    assert addresses("http://h:1/", EngineConfig()) == ("http://h:1/v1",)
    assert addresses("http://h/api/v2/", EngineConfig()) == ("http://h/api/v2",)


def test_an_endpoint_without_log_probabilities_is_asked_once(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("this model does not support logprobs")]
    drawn = draw(endpoint, n=3, concurrency=1)
    assert [c.logprob for c in drawn] == [None] * 3
    assert [body.get("logprobs") for body in endpoint.bodies] == [True, None, None, None]


def test_an_older_name_of_the_limit(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("unknown field max_completion_tokens")]
    draw(endpoint)
    assert endpoint.bodies[-1]["max_tokens"] == 7
    assert "max_completion_tokens" not in endpoint.bodies[-1]


def test_a_prompt_beyond_the_context_is_flagged(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("This model's maximum context length is 512 tokens.")] * 2
    [drawn] = draw(endpoint)
    assert drawn.finish_reason == "overlong"
    assert "max_completion_tokens" not in endpoint.bodies[-1]


def test_another_refusal_is_an_error(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("temperature is too funny")]
    with pytest.raises(EngineError, match="temperature is too funny"):
        draw(endpoint)


@pytest.mark.parametrize("body", ["<html>welcome</html>", {"choices": []}, {}])
def test_an_answer_that_is_none(endpoint: Endpoint, body: Any) -> None:
    endpoint.replies = [(200, body, {})]
    with pytest.raises(EngineError, match="answer"):
        draw(endpoint)


def test_a_slow_endpoint_is_not_waited_for(endpoint: Endpoint, no_pauses: list[float]) -> None:
    gate = threading.Event()
    original = answer

    def stuck(body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        gate.wait(5)
        return original(body)

    globals()["answer"] = stuck
    try:
        with pytest.raises(EngineError, match="did not answer in time"):
            draw(endpoint, timeout_s=0.05)
    finally:
        globals()["answer"] = original
        gate.set()


def test_endpoints_take_turns_and_stand_in_for_each_other(
    endpoint: Endpoint, no_pauses: list[float]
) -> None:
    other = Endpoint()
    try:
        other.replies = [failure(500)] * 2
        drawn = draw(endpoint, n=6, base_urls=(endpoint.url, other.url), concurrency=1)
        assert len(drawn) == 6
        assert len(endpoint.bodies) == 5
        assert len(other.bodies) == 3
    finally:
        other.close()
