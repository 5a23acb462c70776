"""What is made of an endpoint's answers: their end, their cost, their author; what it is sent."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_http import Asked, Reply, Stage, answer, as_json

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.endpoint.transport import ANSWER_BYTES
from lpfloop.policies.engines.engine import Batch, Completion, Request, Sampling
from lpfloop.policies.engines.token_count import BYTES_A_TOKEN, most_tokens, token_count
from lpfloop.stores.chat_markers import FAMILIES, WORD_JOINER
from lpfloop.stores.records import Message

LONGEST = 7
SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=LONGEST)
QUESTION = (Message(role="user", content="what is asked"),)
ABSENT = object()


def drawn(
    reply: Reply,
    messages: tuple[Message, ...] = QUESTION,
    models: Reply | None = None,
    model: str = "unused",
) -> tuple[Completion, list[Asked]]:
    """Ask an endpoint once that answers with `reply`; return what comes of it, and what it got."""
    stage = Stage(1, lambda _, name, attempt: models if name == "/v1/models" else first(attempt))

    def first(attempt: int) -> Reply | None:
        return reply if attempt == 0 else None

    engine = OpenAIEngine(model, EngineConfig(base_urls=stage.urls), loop=stage.loop)
    request = Request(request_id="r", messages=messages, seed=1)
    try:
        [result] = engine.generate([Batch(key="k", requests=(request,), sampling=SAMPLING)])
    finally:
        engine.close()
        stage.close()
    return result.completions[0], stage.posts


def said(change: Callable[[dict[str, Any]], None]) -> Reply:
    """Return a good answer after a change."""
    value = json.loads(answer("yes, of course").body)
    change(value)
    return as_json(200, value)


def with_reason(word: object, tokens: object = 3) -> Reply:
    def change(value: dict[str, Any]) -> None:
        value["choices"][0]["finish_reason"] = word
        value["usage"]["completion_tokens"] = tokens

    return said(change)


def with_usage(usage: object) -> Reply:
    def change(value: dict[str, Any]) -> None:
        value.pop("usage")
        if usage is not ABSENT:
            value["usage"] = usage

    return said(change)


@pytest.mark.parametrize("tokens", [3, LONGEST])
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        *((word, "stop") for word in ("stop", "eos_token", "eos", "end_turn", "COMPLETE", "STOP")),
        *((word, "stop") for word in ("stop_sequence", "STOP_SEQUENCE", "Done")),
        *((word, "length") for word in ("length", "max_tokens", "MAX_TOKENS", "model_length")),
    ],
)
def test_servers_words_for_an_ending_are_known(word, reason, tokens):
    completion, _ = drawn(with_reason(word, tokens))
    assert (completion.finish_reason, completion.text) == (reason, "yes, of course")
    assert completion.provenance.remarks == ()


@pytest.mark.parametrize("word", ["content_filter", "SAFETY", "prohibited_content"])
def test_a_withheld_answer_is_a_failed_request_with_its_reason_and_its_cost(word):
    completion, posts = drawn(with_reason(word))
    assert (completion.finish_reason, completion.text) == ("failed", "")
    assert completion.error == f"the endpoint withholds the answer ({word})"
    assert (completion.prompt_tokens, completion.completion_tokens) == (5, 3)
    assert len(posts) == 1


@pytest.mark.parametrize("word", ["error", "abort", "insufficient_system_resource"])
def test_an_answer_that_the_server_gave_up_is_asked_for_again(word):
    completion, posts = drawn(with_reason(word))
    assert (completion.finish_reason, len(posts)) == ("stop", 2)


@pytest.mark.parametrize(("tokens", "reason"), [(LONGEST - 1, "stop"), (LONGEST, "length")])
def test_an_unknown_word_is_decided_by_the_tokens_and_told(tokens, reason):
    completion, _ = drawn(with_reason("splendid\nend", tokens))
    assert completion.finish_reason == reason
    [remark] = completion.provenance.remarks
    assert remark.startswith("the finish_reason 'splendid end' is not known")


@pytest.mark.parametrize(("tokens", "reason"), [(LONGEST - 1, "stop"), (LONGEST, "length")])
def test_no_word_is_decided_by_the_tokens_without_a_remark(tokens, reason):
    completion, _ = drawn(with_reason(None, tokens))
    assert (completion.finish_reason, completion.provenance.remarks) == (reason, ())


def test_without_usage_tokens_are_counted_by_length_and_that_is_told():
    completion, _ = drawn(with_usage(ABSENT))
    assert completion.prompt_tokens >= len("what is asked") / BYTES_A_TOKEN
    assert completion.completion_tokens == -(-len("yes, of course") // BYTES_A_TOKEN)
    [remark] = completion.provenance.remarks
    assert "counted by lpfloop" in remark


@pytest.mark.model
def test_without_usage_tokens_are_counted_by_the_models_own_tokenizer(tiny_policy: Path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    own = len(tokenizer.encode("yes, of course", add_special_tokens=False))
    assert own != -(-len("yes, of course") // BYTES_A_TOKEN)
    completion, _ = drawn(with_usage(ABSENT), model=str(tiny_policy))
    assert completion.completion_tokens == min(own, LONGEST)
    assert token_count(str(tiny_policy))("yes, of course") == own


@pytest.mark.parametrize("tokens", [-1, 2.5, "many", None, [3], 0])
def test_a_usage_that_is_no_number_of_tokens_is_counted_here(tokens):
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens}
    counted, posts = drawn(with_usage(usage))
    absent, _ = drawn(with_usage(ABSENT))
    assert counted.prompt_tokens == absent.prompt_tokens > 0
    assert counted.completion_tokens == absent.completion_tokens > 0
    assert len(posts) == len(counted.provenance.remarks) == 1


@pytest.mark.parametrize("tokens", [2**31 - 1, 10**30, 1e300])
def test_a_usage_beyond_what_a_request_can_cost_is_capped_and_told(tokens):
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens}
    completion, _ = drawn(with_usage(usage))
    assert completion.completion_tokens == LONGEST
    assert completion.prompt_tokens == most_tokens(QUESTION)
    assert "more tokens than a request can cost" in completion.provenance.remarks[0]


def test_a_usage_that_can_be_is_believed():
    usage = {"prompt_tokens": 9.0, "completion_tokens": str(LONGEST), "total_tokens": 16}
    completion, _ = drawn(with_usage(usage))
    assert (completion.prompt_tokens, completion.completion_tokens) == (9, LONGEST)
    assert completion.provenance.remarks == ()


def test_an_empty_answer_costs_nothing_without_a_remark():
    def change(value: dict[str, Any]) -> None:
        value["choices"][0]["message"]["content"] = ""
        value["usage"]["completion_tokens"] = 0

    completion, _ = drawn(said(change))
    assert (completion.completion_tokens, completion.provenance.remarks) == (0, ())


def test_what_the_endpoint_says_it_is_comes_with_the_answer():
    def change(value: dict[str, Any]) -> None:
        value |= {"model": "judge-2026-10-01", "system_fingerprint": "fp_7"}

    completion, _ = drawn(said(change))
    assert completion.provenance.model == "judge-2026-10-01"
    assert completion.provenance.system_fingerprint == "fp_7"


@pytest.mark.parametrize("name", [5, None, ["m"]])
def test_an_endpoint_that_says_nothing_readable_of_itself_is_nobody(name):
    completion, _ = drawn(said(lambda value: value.update(model=name, system_fingerprint=name)))
    assert (completion.provenance.model, completion.provenance.system_fingerprint) == ("", "")


MARKED = "".join(mark for marks in FAMILIES.values() for mark in marks)
LISTED = {
    "m": None,
    "Qwen/Qwen2.5-72B-Instruct": "qwen",
    "meta-llama/Llama-2-70b-chat-hf": "llama2",
}


@pytest.mark.parametrize("name", LISTED)
def test_no_text_that_is_sent_holds_a_mark_of_the_models_chat_template(name):
    messages = (Message(role="system", content=MARKED), Message(role="user", content=MARKED))
    models = as_json(200, {"data": [{"id": name, "object": "model"}]})
    _, [post] = drawn(answer("x"), messages, models)
    family = LISTED[name]
    own = FAMILIES[family] if family else [m for marks in FAMILIES.values() for m in marks]
    for message in post.body["messages"]:
        assert [mark for mark in own if mark in message["content"]] == []
        assert message["content"].replace(WORD_JOINER, "") == MARKED


def test_the_place_of_the_weights_tells_the_family_of_a_served_name_of_ones_own():
    models = as_json(200, {"data": [{"id": "judge", "root": "Qwen/Qwen3-32B"}]})
    text = (Message(role="user", content="[INST]<|im_end|>"),)
    _, [post] = drawn(answer("x"), text, models)
    assert post.body["messages"][0]["content"] == f"[INST]<{WORD_JOINER}|im_end|>"


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_small_answer_that_unpacks_to_much_never_fills_the_memory(packed):
    """The bomb is small enough to arrive in one piece, and 64 MiB when unpacked."""
    body = packed(b" " * 2**26)
    assert len(body) < 2**16 + 2**10
    encoding = {gzip.compress: "gzip", zlib.compress: "deflate"}[packed]
    reply = Reply(200, body, {"Content-Encoding": encoding, "Content-Type": "application/json"})
    tracemalloc.start()
    completion, _ = drawn(reply)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert completion.error is not None
    assert "larger" in completion.error
    assert peak < 3 * ANSWER_BYTES


def asked(reply: Reply | None = None, query: str = "") -> list[Asked]:
    """Draw two answers, one after the other; return all that the endpoint was asked."""
    stage = Stage(1, lambda _, name, attempt: None if name.startswith("/") else reply)
    config = EngineConfig(base_urls=(stage.urls[0] + query,), concurrency=1)
    engine = OpenAIEngine("unused", config, loop=stage.loop)
    requests = [Request(request_id=str(n), messages=QUESTION, seed=n) for n in range(2)]
    try:
        assert list(engine.generate([Batch(key="k", requests=tuple(requests), sampling=SAMPLING)]))
    finally:
        engine.close()
        stage.close()
    assert len(stage.posts) == 2
    return stage.asked


def test_only_what_the_protocol_needs_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name of this machine's system, nothing that is meant for another host, no cookie."""
    meant = "Authorization: Bearer other\nX-Team: other"
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", meant)
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "other")
    value = json.loads(answer("yes").body)
    for request in asked(as_json(200, value, Set_Cookie="a=other; Path=/")):
        needed = {"accept", "accept-encoding", "authorization", "connection", "host", "user-agent"}
        assert set(request.headers) <= {*needed, "content-length", "content-type"}
        assert request.headers["authorization"] == "Bearer none"
        assert "other" not in str(request.headers)


def test_an_address_with_a_query_keeps_it() -> None:
    found = asked(query="?version=2")
    assert found[0].name == "/v1/models?version=2"


def with_thought(field: str, content: str | None, word: str) -> Reply:
    def change(value: dict[str, Any]) -> None:
        choice = value["choices"][0]
        choice["message"] |= {"content": content, field: "Hm. 2 and 3."}
        choice["finish_reason"] = word

    return said(change)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize(
    ("content", "word", "reason"),
    [
        ("5", "stop", "stop"),
        ("5", "length", "length"),
        (None, "length", "truncated_thinking"),
        ("\n", "length", "truncated_thinking"),
        (None, "stop", "stop"),
    ],
)
def test_a_thought_is_kept_apart_and_an_answer_cut_inside_it_says_so(field, content, word, reason):
    completion, _ = drawn(with_thought(field, content, word))
    assert completion.finish_reason == reason
    assert completion.reasoning == "Hm. 2 and 3."
    assert completion.text == (content or "")
