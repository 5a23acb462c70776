"""Parsing an endpoint's answers (end, cost, author), and the requests it gets."""

import json
from collections.abc import Callable
from typing import Any

from chat_marks import CHAT_MARKS
from clock import Asked, Reply, Stage, answer, as_json

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.engines.engine import Batch, Completion, Request, Sampling
from lpfloop.policies.engines.token_count import BYTES_A_TOKEN, most_tokens
from lpfloop.stores.chat_markers import WORD_JOINER
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
    """Send one request to an endpoint that answers with `reply`; return completion and requests."""
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
    return result.answers[0], stage.posts


def said(change: Callable[[dict[str, Any]], None]) -> Reply:
    """Return a good answer with a change."""
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


def test_words_for_endings(subtests):
    for tokens in [3, LONGEST]:
        for word, reason in [
            *((word, "stop") for word in ("stop", "eos_token", "STOP_SEQUENCE", "Done")),
            *((word, "length") for word in ("length", "MAX_TOKENS", "model_length")),
        ]:
            with subtests.test(tokens=tokens, word=word, reason=reason):
                completion, _ = drawn(with_reason(word, tokens))
                assert (completion.finish_reason, completion.text) == (reason, "yes, of course")
                assert completion.provenance.remarks == ()


def test_withheld_answer(subtests):
    for word in ["content_filter", "SAFETY", "prohibited_content"]:
        with subtests.test(word=word):
            completion, posts = drawn(with_reason(word))
            assert (completion.finish_reason, completion.text) == ("failed", "")
            assert completion.error == f"the endpoint withholds the answer ({word})"
            assert (completion.prompt_tokens, completion.completion_tokens) == (5, 3)
            assert len(posts) == 1


def test_withheld_without_message(subtests):
    for word in ["content_filter", "content_filter: PROHIBITED_CONTENT"]:
        for message in [None, ABSENT, {"role": "assistant"}]:
            with subtests.test(word=word, message=message):
                choice = {"index": 0, "finish_reason": word, "message": message}
                if message is ABSENT:
                    del choice["message"]
                completion, posts = drawn(said(lambda value, c=choice: value.update(choices=[c])))
                assert (completion.finish_reason, completion.text) == ("failed", "")
                assert "withholds" in (completion.error or "")
                assert len(posts) == 1


def test_content_parts(subtests):
    text, thought = {"type": "text", "text": "yes, "}, {"type": "text", "text": "hm"}
    for content, read in [
        ([text], ("yes, ", "")),
        ([text, {"type": "output_text", "text": "of course"}], ("yes, of course", "")),
        ([{"type": "thinking", "thinking": [thought]}, text], ("yes, ", "hm")),
        ([{"type": "thinking", "thinking": "hm"}, text], ("yes, ", "hm")),
        ([{"type": "image_url", "image_url": {}}, text], ("yes, ", "")),
        ([], ("", "")),
    ]:
        with subtests.test(content=content):
            completion, posts = drawn(said(lambda value, c=content: write(value, c)))
            assert (completion.text, completion.reasoning, len(posts)) == (*read, 1)


def test_unreadable_parts(subtests):
    for content in [["yes"], [{"type": "text"}], [{"type": "audio"}], [5], {"text": "yes"}]:
        with subtests.test(content=content):
            completion, posts = drawn(said(lambda value, c=content: write(value, c)))
            assert (completion.finish_reason, len(posts)) == ("stop", 2)


def write(value: dict[str, Any], content: object) -> None:
    """Return an answer whose message contains `content`."""
    value["choices"][0]["message"]["content"] = content


def test_answer_given_up(subtests):
    for word in ["error", "abort", "insufficient_system_resource"]:
        with subtests.test(word=word):
            completion, posts = drawn(with_reason(word))
            assert (completion.finish_reason, len(posts)) == ("stop", 2)


def test_unknown_word(subtests):
    for tokens, reason in [(LONGEST - 1, "stop"), (LONGEST, "length")]:
        with subtests.test(tokens=tokens, reason=reason):
            completion, _ = drawn(with_reason("splendid\nend", tokens))
            assert completion.finish_reason == reason
            [remark] = completion.provenance.remarks
            assert remark.startswith("unknown finish_reason 'splendid end'")


def test_no_usage():
    completion, _ = drawn(with_usage(ABSENT))
    assert completion.prompt_tokens >= len("what is asked") / BYTES_A_TOKEN
    assert completion.completion_tokens == -(-len("yes, of course") // BYTES_A_TOKEN)
    [remark] = completion.provenance.remarks
    assert "counted by lpfloop" in remark


def test_unreadable_usage(subtests):
    for tokens in [-1, 2.5, "many", None]:
        with subtests.test(tokens=tokens):
            usage = {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens}
            counted, posts = drawn(with_usage(usage))
            absent, _ = drawn(with_usage(ABSENT))
            assert counted.prompt_tokens == absent.prompt_tokens > 0
            assert counted.completion_tokens == absent.completion_tokens > 0
            assert len(posts) == len(counted.provenance.remarks) == 1


def test_impossible_usage(subtests):
    for tokens in [2**31 - 1, 1e300]:
        with subtests.test(tokens=tokens):
            usage = {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens}
            completion, _ = drawn(with_usage(usage))
            assert completion.completion_tokens == LONGEST
            assert completion.prompt_tokens == most_tokens(QUESTION)
            assert "more tokens than a request can cost" in completion.provenance.remarks[0]


def test_usage():
    usage = {"prompt_tokens": 9.0, "completion_tokens": str(LONGEST), "total_tokens": 16}
    completion, _ = drawn(with_usage(usage))
    assert (completion.prompt_tokens, completion.completion_tokens) == (9, LONGEST)
    assert completion.provenance.remarks == ()


MARKED = "".join(CHAT_MARKS)


def test_chat_markers():
    messages = (Message(role="system", content=MARKED), Message(role="user", content=MARKED))
    _, [post] = drawn(answer("x"), messages)
    for message in post.body["messages"]:
        assert not any(mark in message["content"] for mark in CHAT_MARKS)
        assert message["content"].replace(WORD_JOINER, "") == MARKED


def asked(reply: Reply) -> list[Asked]:
    """Draw two answers, one after the other; return all requests to the endpoint."""
    stage = Stage(1, lambda _, name, attempt: None if name.startswith("/") else reply)
    config = EngineConfig(base_urls=stage.urls, concurrency=1)
    engine = OpenAIEngine("unused", config, loop=stage.loop)
    requests = [Request(request_id=str(n), messages=QUESTION, seed=n) for n in range(2)]
    try:
        assert list(engine.generate([Batch(key="k", requests=tuple(requests), sampling=SAMPLING)]))
    finally:
        engine.close()
        stage.close()
    assert len(stage.posts) == 2
    return stage.asked


def test_sent_headers(environ: dict[str, str]) -> None:
    """They contain no name of this machine's system, no header for other hosts, no cookie."""
    meant = "Authorization: Bearer other\nX-Team: other"
    environ["OPENAI_CUSTOM_HEADERS"] = meant
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        environ[name] = "other"
    value = json.loads(answer("yes").body)
    for request in asked(as_json(200, value, Set_Cookie="a=other; Path=/")):
        needed = {"accept", "accept-encoding", "authorization", "connection", "host", "user-agent"}
        assert set(request.headers) <= {*needed, "content-length", "content-type"}
        assert request.headers["authorization"] == "Bearer none"
        assert "other" not in str(request.headers)


def with_thought(field: str, content: str | None, word: str) -> Reply:
    def change(value: dict[str, Any]) -> None:
        choice = value["choices"][0]
        choice["message"] |= {"content": content, field: "Hm. 2 and 3."}
        choice["finish_reason"] = word

    return said(change)


def test_reasoning(subtests):
    for field in ["reasoning_content", "reasoning"]:
        for content, word, reason in [
            ("5", "stop", "stop"),
            ("5", "length", "length"),
            (None, "length", "truncated_thinking"),
            ("\n", "length", "truncated_thinking"),
            (None, "stop", "stop"),
        ]:
            with subtests.test(field=field, content=content, word=word, reason=reason):
                completion, _ = drawn(with_thought(field, content, word))
                assert completion.finish_reason == reason
                assert completion.reasoning == "Hm. 2 and 3."
                assert completion.text == (content or "")
