"""Requests to endpoints, probes of endpoints, and protocol fields that they may lack."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.endpoint import addresses, probe
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.engines.engine import Batch, EngineError, Request, Sampling
from lpfloop.stores.records import Message

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=7)
SEED = 2**53 - 1


class Endpoint:
    """A server on loopback: sends a list of replies, then good ones; stores its requests."""

    def __init__(self) -> None:
        self.models: tuple[int, Any] = (200, {"object": "list", "data": [{"id": "m"}]})
        self.replies: list[tuple[int, Any, dict[str, str]]] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.refuses: Callable[[dict[str, Any]], str | None] = lambda body: None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # a client that has stopped waiting
                    super().handle()

            def do_GET(self) -> None:
                endpoint.keys.add(self.headers["Authorization"])
                self.reply(*endpoint.models, {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.bodies.append(body)
                if name := endpoint.refuses(body):
                    self.reply(*refusal(f"Unsupported parameter: '{name}'"))
                    return
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
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


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


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.close()


def batch(n: int, sampling: Sampling = SAMPLING) -> Batch:
    message = (Message(role="user", content="hello"),)
    requests = tuple(Request(request_id=str(i), messages=message, seed=SEED) for i in range(n))
    return Batch(key="k", requests=requests, sampling=sampling)


def draw(
    endpoint: Endpoint, n: int = 1, sampling: Sampling | None = None, **config: Any
) -> list[Any]:
    engine = OpenAIEngine(endpoint.url, EngineConfig(**config))
    try:
        [result] = engine.generate([batch(n, sampling or SAMPLING)])
    finally:
        engine.close()
    return list(result.answers)


def test_sent_and_read(endpoint: Endpoint) -> None:
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


def test_key_from_environment(endpoint: Endpoint, environ: dict[str, str]) -> None:
    environ["OPENAI_API_KEY"] = "another program's"
    draw(endpoint)
    assert endpoint.keys == {"Bearer none"}
    environ["LPFLOOP_API_KEY"] = "ours"
    draw(endpoint)
    assert endpoint.keys == {"Bearer none", "Bearer ours"}


def test_vllm_fields(endpoint: Endpoint) -> None:
    endpoint.models = (200, {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]})
    draw(endpoint)
    sent = endpoint.bodies.pop()
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (0, 0.0, 1.0)
    how = replace(SAMPLING, top_k=20, min_p=0.1, repetition_penalty=1.1, stop=("\n\n", "END"))
    draw(endpoint, sampling=how, chat_template_kwargs={"enable_thinking": False})
    [sent] = endpoint.bodies
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (20, 0.1, 1.1)
    assert sent["stop"] == ["\n\n", "END"]
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}


def test_fields_of_vllm_alone(subtests, endpoint: Endpoint):
    for how, config, named in [
        ({"top_k": 20}, {}, "top_k"),
        ({"logit_bias": (("1", 7.0),)}, {}, "by its text"),
        ({}, {"chat_template_kwargs": {"thinking": True}}, "chat_template_kwargs"),
    ]:
        with subtests.test(how=how, config=config, named=named):
            with pytest.raises(EngineError, match=named):
                draw(endpoint, sampling=replace(SAMPLING, **how), **config)
            assert endpoint.bodies == []


def test_probe_causes(subtests, endpoint: Endpoint):
    for models, sentence in [
        ((401, {}), "API key"),
        ((404, {}), "not found"),
        ((200, "<html>welcome</html>"), "OpenAI-compatible"),
        ((200, {"data": []}), "none"),
        ((200, {"data": [{"id": "a"}, {"id": "b"}]}), "model_name"),
    ]:
        with subtests.test(models=models, sentence=sentence):
            endpoint.models = models
            with pytest.raises(EngineError, match=sentence):
                probe(f"{endpoint.url}/v1", "made-up")


def test_addresses() -> None:
    with pytest.raises(EngineError, match="is not an endpoint"):
        addresses("model", EngineConfig())
    for wrong in ("http://h:port/", "http://[::1/", "http://", "ftp://h"):
        with pytest.raises(EngineError, match="is not an endpoint"):
            addresses(wrong, EngineConfig())
    assert addresses("http://h:1/", EngineConfig()) == ("http://h:1/v1",)
    assert addresses("http://h/api/v2/", EngineConfig()) == ("http://h/api/v2",)


def test_no_logprobs(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("this model does not support logprobs")]
    drawn = draw(endpoint, n=3, concurrency=1)
    assert [c.logprob for c in drawn] == [None] * 3
    assert [body.get("logprobs") for body in endpoint.bodies] == [True, None, None, None]


def test_system_turn_refused(endpoint: Endpoint) -> None:
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
    asked = tuple(Request(request_id=str(i), messages=messages, seed=i) for i in range(3))
    endpoint.replies = [refusal("System role not supported")]
    engine = OpenAIEngine(endpoint.url, EngineConfig(concurrency=1))
    try:
        [result] = engine.generate([Batch(key="k", requests=asked, sampling=SAMPLING)])
    finally:
        engine.close()
    sent = [[(m["role"], m["content"]) for m in body["messages"]] for body in endpoint.bodies]
    folded = [("user", "Be brief.\n\nWho?")]
    assert sent == [[("system", "Be brief."), ("user", "Who?")], folded, folded, folded]
    assert [drawn.finish_reason for drawn in result.answers] == ["stop"] * 3
    assert any("refuses system turns" in remark for remark in remarks_of(list(result.answers)))


def remarks_of(drawn: list[Any]) -> set[str]:
    return {remark for c in drawn if c.provenance for remark in c.provenance.remarks}


UNSUPPORTED = (
    (
        "Unsupported value: 'temperature' does not support 0. Only the default (1) is supported.",
        "temperature",
    ),
    ("Unsupported parameter: 'top_p' is not supported with this model.", "top_p"),
    ("`temperature` and `top_p` cannot both be specified for this model.", "top_p"),
    ("Unrecognized request argument supplied: seed", "seed"),
)


def test_field_refused(subtests, endpoint: Endpoint):
    for told, field in UNSUPPORTED:
        with subtests.test(told=told, field=field):
            endpoint.bodies.clear()
            endpoint.replies = [refusal(told)]
            drawn = draw(endpoint, n=3, concurrency=1)
            assert [c.finish_reason for c in drawn] == ["stop"] * 3
            missing = [{"temperature", "top_p", "seed"} - {*body} for body in endpoint.bodies]
            assert missing == [set(), {field}, {field}, {field}]
            assert any(f"refuses {field}" in remark for remark in remarks_of(drawn))


def test_fields_kept(subtests, endpoint: Endpoint):
    for told in [
        "temperature must be between 0 and 1",
        "Unsupported parameter: 'my_temperature_2'",
    ]:
        with subtests.test(told=told):
            endpoint.bodies.clear()
            endpoint.replies = [refusal(told)]
            first, second = draw(endpoint, n=2, concurrency=1)
            assert (first.finish_reason, second.finish_reason) == ("failed", "stop")
            assert told in first.error
            assert {"temperature", "top_p", "seed"} <= set(endpoint.bodies[-1])


def test_extra_body(endpoint: Endpoint) -> None:
    body = {"service_tier": "flex", "provider": {"order": ["a"]}}
    draw(endpoint, extra_body=body, reasoning_effort="low")
    assert body.items() <= endpoint.bodies[-1].items()
    assert endpoint.bodies[-1]["reasoning_effort"] == "low"


def test_truncated_thinking(endpoint: Endpoint) -> None:
    status, body, headers = answer({"messages": [{"content": "x"}]})
    body["choices"][0] |= {"finish_reason": "length", "message": {"role": "assistant"}}
    body["usage"] |= {"completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 7}}
    endpoint.replies = [(status, body, headers)]
    drawn = draw(endpoint)
    assert [c.finish_reason for c in drawn] == ["truncated_thinking"]
    assert any("at 7 tokens: set engine.reasoning_tokens" in told for told in remarks_of(drawn))


def test_older_limit_name(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("unknown field max_completion_tokens")]
    draw(endpoint)
    assert endpoint.bodies[-1]["max_tokens"] == 7
    assert "max_completion_tokens" not in endpoint.bodies[-1]


def test_overlong_prompt(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("This model's maximum context length is 512 tokens.")] * 2
    [drawn] = draw(endpoint)
    assert drawn.finish_reason == "overlong"
    assert "max_completion_tokens" not in endpoint.bodies[-1]
