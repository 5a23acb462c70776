"""What endpoints are sent, how they are probed, and what of the protocol they may not know."""

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
from lpfloop.policies.engines.feed import Feed
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
        self.refuses: Callable[[dict[str, Any]], str | None] = lambda body: None
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
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
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


def test_log_probabilities_are_asked_for_where_they_are_wanted(endpoint: Endpoint) -> None:
    draw(endpoint, sampling=replace(SAMPLING, logprob=False))
    assert "logprobs" not in endpoint.bodies[0]


def test_a_batch_whose_bias_names_a_text_is_refused_before_it_is_sent(endpoint: Endpoint) -> None:
    """It is the batch that is refused: those before it are answered."""
    engine = OpenAIEngine(endpoint.url, EngineConfig())
    feed: Feed[Batch] = Feed()
    results = engine.generate(feed)
    feed.put(batch(2))
    assert len(next(results).completions) == 2
    feed.put(batch(3, replace(SAMPLING, logit_bias=(("1", 7.0),))))
    with pytest.raises(EngineError, match=r"names a token by its text \('1'\)"):
        next(results)
    engine.close()
    assert len(endpoint.bodies) == 2


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
    assert "chat_template_kwargs" not in sent


def test_vllm_gets_what_only_it_understands(endpoint: Endpoint) -> None:
    endpoint.models = (200, {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]})
    how = replace(SAMPLING, top_k=20, min_p=0.1, repetition_penalty=1.1, stop=("\n\n", "END"))
    draw(endpoint, sampling=how, chat_template_kwargs={"enable_thinking": False})
    [sent] = endpoint.bodies
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (20, 0.1, 1.1)
    assert sent["stop"] == ["\n\n", "END"]
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("how", "config", "named"),
    [
        ({"top_k": 20}, {}, "sampling.top_k"),
        ({"min_p": 0.1}, {}, "sampling.min_p"),
        ({"repetition_penalty": 1.1}, {}, "sampling.repetition_penalty"),
        ({}, {"chat_template_kwargs": {"thinking": True}}, "engine.chat_template_kwargs"),
    ],
)
def test_another_server_is_not_sent_what_only_vllm_understands(
    endpoint: Endpoint, how: dict[str, Any], config: dict[str, Any], named: str
) -> None:
    with pytest.raises(EngineError, match=f"{named}: only vLLM's server"):
        draw(endpoint, sampling=replace(SAMPLING, **how), **config)
    assert endpoint.bodies == []


def test_every_server_gets_the_texts_that_stop_an_answer(endpoint: Endpoint) -> None:
    draw(endpoint, sampling=replace(SAMPLING, stop=("END",)))
    assert endpoint.bodies[0]["stop"] == ["END"]


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ((401, {}), "refuses the API key"),
        ((404, {}), "not found"),
        ((307, {}), "redirects"),
        ((500, {}), "HTTP 500"),
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
    with pytest.raises(EngineError, match="cannot be reached"):
        probe("http://127.0.0.1:9/v1", None)


def test_no_endpoint_at_all() -> None:
    with pytest.raises(EngineError, match="is not an endpoint"):
        addresses("model", EngineConfig())
    for wrong in ("http://h:port/", "http://[::1/", "http://", "ftp://h"):
        with pytest.raises(EngineError, match="is not an endpoint"):
            addresses(wrong, EngineConfig())
    assert addresses("http://h:1/", EngineConfig()) == ("http://h:1/v1",)
    assert addresses("http://h/api/v2/", EngineConfig()) == ("http://h/api/v2",)


def test_an_endpoint_without_log_probabilities_is_asked_once(endpoint: Endpoint) -> None:
    endpoint.replies = [refusal("this model does not support logprobs")]
    drawn = draw(endpoint, n=3, concurrency=1)
    assert [c.logprob for c in drawn] == [None] * 3
    assert [body.get("logprobs") for body in endpoint.bodies] == [True, None, None, None]


SYSTEM_REFUSALS = (
    "System role not supported",
    "Conversation roles must alternate user/assistant/user/assistant/... None",
    "Only user and assistant roles are supported!",
)


@pytest.mark.parametrize("told", SYSTEM_REFUSALS)
def test_a_system_turn_that_is_refused_begins_the_users(endpoint: Endpoint, told: str) -> None:
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
    asked = tuple(Request(request_id=str(i), messages=messages, seed=i) for i in range(3))
    endpoint.replies = [refusal(told)]
    engine = OpenAIEngine(endpoint.url, EngineConfig(concurrency=1))
    try:
        [result] = engine.generate([Batch(key="k", requests=asked, sampling=SAMPLING)])
    finally:
        engine.close()
    sent = [[(m["role"], m["content"]) for m in body["messages"]] for body in endpoint.bodies]
    assert sent == [
        [("system", "Be brief."), ("user", "Who?")],
        *[[("user", "Be brief.\n\nWho?")]] * 3,
    ]
    assert [drawn.finish_reason for drawn in result.completions] == ["stop"] * 3
    remarks = {r for c in result.completions if c.provenance for r in c.provenance.remarks}
    assert any("refuses system turns" in remark for remark in remarks)


def test_other_refusals_change_no_system_turn(endpoint: Endpoint) -> None:
    odd = (Message(role="user", content="a"), Message(role="user", content="b"))
    usual = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
    refused = [(odd, "roles must alternate"), (usual, "this text is against our terms")]
    asked = [Request(request_id=str(i), messages=m, seed=i) for i, (m, _) in enumerate(refused)]
    endpoint.replies = [refusal(told) for _, told in refused]
    engine = OpenAIEngine(endpoint.url, EngineConfig(concurrency=1))
    last = Request(request_id="last", messages=usual, seed=3)
    requests = (*asked, last)
    try:
        [result] = engine.generate([Batch(key="k", requests=requests, sampling=SAMPLING)])
    finally:
        engine.close()
    assert [c.finish_reason for c in result.completions] == ["failed", "failed", "stop"]
    assert [m["role"] for m in endpoint.bodies[-1]["messages"]] == ["system", "user"]


def remarks_of(drawn: list[Any]) -> set[str]:
    return {remark for c in drawn if c.provenance for remark in c.provenance.remarks}


UNSUPPORTED = (
    (
        "Unsupported value: 'temperature' does not support 0. Only the default (1) is supported.",
        "temperature",
    ),
    ("Unsupported parameter: 'top_p' is not supported with this model.", "top_p"),
    ("`temperature` and `top_p` cannot both be specified for this model.", "top_p"),
    ("`temperature` is deprecated for this model.", "temperature"),
    ("invalid temperature: only 1 is allowed for this model", "temperature"),
    ("Unrecognized request argument supplied: seed", "seed"),
)


@pytest.mark.parametrize(("told", "field"), UNSUPPORTED)
def test_a_field_that_is_not_supported_is_left_out_from_then_on(
    endpoint: Endpoint, told: str, field: str
) -> None:
    endpoint.replies = [refusal(told)]
    drawn = draw(endpoint, n=3, concurrency=1)
    assert [c.finish_reason for c in drawn] == ["stop"] * 3
    drawn_by = {"temperature", "top_p", "seed"}
    assert [drawn_by - set(body) for body in endpoint.bodies] == [set(), {field}, {field}, {field}]
    assert any(f"refuses {field}" in remark for remark in remarks_of(drawn))


def test_fields_are_left_out_one_refusal_each_while_others_are_in_flight(
    endpoint: Endpoint,
) -> None:
    names = ("temperature", "top_p", "seed")
    endpoint.refuses = lambda body: next((name for name in names if name in body), None)
    drawn = draw(endpoint, n=24, concurrency=8)
    assert [c.finish_reason for c in drawn] == ["stop"] * 24
    assert len(remarks_of(drawn)) == 3
    # Eight were in flight at most when each of the three was refused.
    assert len(endpoint.bodies) <= 24 + 3 * 8


DETAIL = {
    "detail": [
        {
            "type": "extra_forbidden",
            "loc": ["body", "seed"],
            "msg": "Extra inputs are not permitted",
            "input": {"temperature": 0.5, "top_p": 0.9},
        }
    ]
}
PARAM = {
    "error": {
        "message": "Unsupported value: 'top_p', with this temperature.",
        "param": "top_p",
        "code": "unsupported_value",
    }
}


@pytest.mark.parametrize(("body", "field"), [(DETAIL, "seed"), (PARAM, "top_p")])
def test_a_field_that_is_named_apart_is_the_only_one_meant(
    endpoint: Endpoint, body: Any, field: str
) -> None:
    endpoint.replies = [(422, body, {})]
    draw(endpoint)
    assert {"temperature", "top_p", "seed"} - set(endpoint.bodies[-1]) == {field}


@pytest.mark.parametrize(
    "told",
    [
        "temperature must be between 0 and 1",
        "Unsupported value: temperature is out of range",
        "this text on temperature is against our terms",
        "Unsupported parameter: 'my_temperature_2'",
        "Unsupported content type",
    ],
)
def test_what_is_not_named_as_unsupported_is_still_sent(endpoint: Endpoint, told: str) -> None:
    endpoint.replies = [refusal(told)]
    first, second = draw(endpoint, n=2, concurrency=1)
    assert (first.finish_reason, second.finish_reason) == ("failed", "stop")
    assert told in first.error
    assert {"temperature", "top_p", "seed"} <= set(endpoint.bodies[-1])


def test_what_a_user_adds_to_the_body_is_sent(endpoint: Endpoint) -> None:
    body = {"service_tier": "flex", "provider": {"order": ["a"]}}
    draw(endpoint, extra_body=body, reasoning_effort="low")
    assert body.items() <= endpoint.bodies[-1].items()
    assert endpoint.bodies[-1]["reasoning_effort"] == "low"


def test_an_answer_lost_to_reasoning_names_the_setting(endpoint: Endpoint) -> None:
    status, body, headers = answer({"messages": [{"content": "x"}]})
    body["choices"][0] |= {"finish_reason": "length", "message": {"role": "assistant"}}
    body["usage"] |= {"completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 7}}
    endpoint.replies = [(status, body, headers)]
    drawn = draw(endpoint)
    assert [c.finish_reason for c in drawn] == ["truncated_thinking"]
    assert any("at 7 tokens: set engine.reasoning_tokens" in told for told in remarks_of(drawn))


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
