"""Every fault of an endpoint, at several attempts, on real sockets and a virtual clock."""

import asyncio
import base64
import gzip
import itertools
import json
import logging
import math
import random
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_http import Asked, Reply, Script, Stage, answer, as_json, failure
from staged_engine import StagedEngine
from waiting import wait_until

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint import gate as endpoint_gate
from lpfloop.policies.endpoint import retry as endpoint_retry
from lpfloop.policies.endpoint.faults import LONGEST_PAUSE_S, asked_pause
from lpfloop.policies.endpoint.openai_engine import REFUSED, OpenAIEngine
from lpfloop.policies.engines.engine import (
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
)
from lpfloop.policies.engines.feed import Feed
from lpfloop.stores.records import Message

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=7)
KEY = "canary-key/0123456789+abcdef"
DEADLINE_S = 60.0
PATIENCE_S = 1e5
NAMES = ("victim", "second", "third")
HTML = {"Content-Type": "text/html"}
PAGE = b"<html><body>We will be back soon.</body></html>"


def batch(*names: str) -> Batch:
    requests = tuple(
        Request(request_id=name, messages=(Message(role="user", content=name),), seed=i)
        for i, name in enumerate(names)
    )
    return Batch(key="-".join(names), requests=requests, sampling=SAMPLING)


class Played:
    """What came of one engine's requests."""

    def __init__(self, stage: Stage, drawn: dict[str, Completion], error: EngineError | None):
        self.posts = stage.posts
        self.asked = stage.asked
        self.drawn = drawn
        self.error = error
        self.seconds = max((asked.at for asked in stage.asked), default=0.0)
        self.ended = stage.loop.time()


def play(
    script: Script,
    *batches: Batch,
    endpoints: int = 1,
    concurrency: int = 2,
    patience_s: float = PATIENCE_S,
) -> Played:
    """Draw `batches` from endpoints that follow `script`."""
    random.seed(0)
    stage = Stage(endpoints, script)
    config = EngineConfig(
        base_urls=stage.urls,
        canary_s=None,
        api_key=KEY,
        concurrency=concurrency,
        timeout_s=DEADLINE_S,
        patience_s=patience_s,
    )
    engine = StagedEngine("unused", config, loop=stage.loop)
    results: list[BatchResult] = []
    error = None
    try:
        results.extend(engine.generate(batches or [batch(*NAMES)]))
    except EngineError as caught:
        error = caught
    finally:
        engine.close()
        stage.close()
    drawn = {c.request_id: c for result in results for c in result.completions}
    return Played(stage, drawn, error)


def always(reply: Reply) -> Script:
    """Every chat completion meets `reply`."""
    return lambda _, name, attempt: None if name.startswith("/") else reply


def on_victim(reply: Reply, attempts: int) -> Script:
    """The first `attempts` of one request meet `reply`; all else is answered."""
    return lambda _, name, attempt: reply if name == "victim" and attempt < attempts else None


TEMPORARY: dict[str, Reply] = {
    **{f"HTTP {status}": failure(status) for status in (408, 409, 425, 429, 500, 502, 503, 504)},
    "HTTP 500 in HTML": Reply(500, PAGE, HTML),
    "HTTP 503, huge": Reply(503, b"x", manner="endless"),
    "reset": Reply(manner="reset"),
    "closed without a word": Reply(manner="silent"),
    "half a body": Reply(200, answer("victim").body, manner="cut"),
    "hang": Reply(manner="hang"),
    "slow drip": Reply(200, answer("victim").body, manner="drip"),
    "HTML with status 200": Reply(200, PAGE, HTML),
    "HTML that says JSON": Reply(200, PAGE, {"Content-Type": "application/json"}),
    "bytes": Reply(200, b"\x00\xff\xfe", {"Content-Type": "application/octet-stream"}),
    "no content": Reply(204),
    "empty": Reply(200, b""),
    "bad gzip": Reply(200, b"not gzip", {"Content-Encoding": "gzip"}),
    "not HTTP": Reply(200, b"", {"Content-Length": "many"}),
    "deep JSON": Reply(200, b"[" * 100_000, {"Content-Type": "application/json"}),
}

NO_COMPLETIONS = (
    None,
    7,
    "text",
    [],
    {},
    {"error": {"message": "overloaded"}},
    {"choices": []},
    {"choices": None},
    {"choices": "abc"},
    {"choices": {}},
    {"choices": [None]},
    {"choices": [{"message": None}]},
    {"choices": [{"message": {"content": 5}}]},
    {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [5]}}]},
)

SERVER_DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
RETRY_AFTER = {
    "7": 7.0,
    "0.25": 0.25,
    "1e-9": 0.1,
    "0": None,
    "-5": None,
    "1000000000": LONGEST_PAUSE_S,
    "inf": LONGEST_PAUSE_S,
    "nan": None,
    "soon": None,
    "": None,
    "Wed, 21 Oct 2026 07:28:45 GMT": 45.0,
    "Wed, 21 Oct 2026 07:27:00 GMT": None,
    "Wed, 21 Oct 9999 07:28:00 GMT": LONGEST_PAUSE_S,
}

FINAL = {
    "HTTP 401": (failure(401, f"Incorrect API key: {KEY}"), "refuses the API key"),
    "HTTP 403": (failure(403), "refuses the API key"),
    "HTTP 404": (failure(404), "not found"),
    "HTTP 402": (failure(402), "HTTP 402"),
    "HTTP 405": (failure(405), "HTTP 405"),
    "spent": (failure(429, "pay", "insufficient_quota", Retry_After="1"), "quota"),
    "redirect": (as_json(302, {}, Location="http://169.254.169.254/latest"), "redirects"),
    "moved": (as_json(308, {}, Location="/v2/chat/completions"), "redirects"),
}

OWN = {
    "HTTP 400": failure(400, "the text is not nice"),
    "HTTP 422": failure(422, "the text is not nice"),
    "HTTP 413": failure(413, "the text is not nice"),
    "endless answer": Reply(200, manner="endless"),
    "gzip bomb": Reply(200, gzip.compress(b" " * 2**25), {"Content-Encoding": "gzip"}),
    "brackets": Reply(200, b'{"choices": [' + b"{}," * 300_000 + b"{}]}"),
}


def gaps_are_kept(posts: list[Asked], rest_s: float) -> bool:
    """Whether no request came to an endpoint while it had asked for rest."""
    told = [(post.at, post.endpoint) for post in posts if "Retry-After" in post.reply.headers]
    return not any(
        at < post.at < at + rest_s - 0.01 and post.endpoint == endpoint
        for at, endpoint in told
        for post in posts
    )


def longest(attempts: int, rest_s: float) -> float:
    """Bound the seconds that `attempts` failures may cost."""
    return sum(
        DEADLINE_S + rest_s + min(2.0**i, 30.0) + min(2.0 ** (i + 1), 60.0) for i in range(attempts)
    )


@pytest.mark.parametrize("endpoints", [1, 3])
@pytest.mark.parametrize("attempts", [1, 3, 6])
@pytest.mark.parametrize("kind", TEMPORARY)
def test_what_is_temporary_is_waited_out(kind: str, attempts: int, endpoints: int) -> None:
    played = play(on_victim(TEMPORARY[kind], attempts), endpoints=endpoints)
    assert played.error is None
    assert {name: drawn.text for name, drawn in played.drawn.items()} == {n: n for n in NAMES}
    assert len(played.posts) == len(NAMES) + attempts
    assert 0 < played.seconds <= longest(attempts, 0)


@pytest.mark.parametrize("value", NO_COMPLETIONS, ids=repr)
def test_what_is_no_chat_completion_is_asked_again(value: object) -> None:
    played = play(on_victim(as_json(200, value), 2))
    assert played.error is None
    assert played.drawn["victim"].text == "victim"
    assert len(played.posts) == len(NAMES) + 2


@pytest.mark.parametrize("endpoints", [1, 3])
@pytest.mark.parametrize("attempts", [1, 3, 9])
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("asked", RETRY_AFTER)
def test_a_time_that_is_named_is_kept(
    asked: str, status: int, attempts: int, endpoints: int
) -> None:
    reply = failure(status, Retry_After=asked, Date=SERVER_DATE)
    played = play(on_victim(reply, attempts), endpoints=endpoints)
    rest = RETRY_AFTER[asked] or 0.0
    assert played.error is None
    assert {name: drawn.text for name, drawn in played.drawn.items()} == {n: n for n in NAMES}
    assert len(played.posts) == len(NAMES) + attempts
    assert gaps_are_kept(played.posts, rest)
    assert attempts // endpoints * rest - 0.01 <= played.seconds <= longest(attempts, rest)


@pytest.mark.parametrize("endpoints", [1, 3])
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("kind", FINAL)
def test_what_will_not_change_stops_at_once(kind: str, before: int, endpoints: int) -> None:
    reply, sentence = FINAL[kind]
    met = failure(503)

    def script(_: int, name: str, attempt: int) -> Reply | None:
        if name != "victim":
            return None
        return met if attempt < before else reply

    names = [f"n{i}" for i in range(20)]
    played = play(script, batch("victim", *names), endpoints=endpoints, concurrency=1)
    assert played.error is not None
    assert sentence in str(played.error)
    [last] = [number for number, post in enumerate(played.posts) if post.reply is reply]
    elsewhere = {post.endpoint for post in played.posts[last + 1 :]}
    assert played.posts[last].endpoint not in elsewhere, "a request was sent after the last word"
    assert len(played.posts) - last <= endpoints, "more than was under way at the other endpoints"
    assert [post.attempt for post in played.posts if post.name == "victim"] == list(
        range(before + 1)
    )
    assert KEY not in "".join(traceback.format_exception(played.error))


@pytest.mark.parametrize("endpoints", [1, 2])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("kind", OWN)
def test_one_request_alone_is_refused(kind: str, before: int, endpoints: int) -> None:
    def script(_: int, name: str, attempt: int) -> Reply | None:
        if name != "victim":
            return None
        return failure(502) if attempt < before else OWN[kind]

    played = play(script, endpoints=endpoints)
    assert played.error is None
    victim = played.drawn["victim"]
    assert (victim.finish_reason, victim.text) == ("failed", "")
    assert victim.error
    assert "not nice" in victim.error or "larger" in victim.error
    assert {played.drawn[name].text for name in NAMES[1:]} == {"second", "third"}
    assert len(played.posts) == len(NAMES) + before


@pytest.mark.parametrize("kind", TEMPORARY)
def test_an_endpoint_that_can_not_say_yet_what_it_serves(kind: str) -> None:
    def script(_: int, name: str, attempt: int) -> Reply | None:
        return TEMPORARY[kind] if name == "/v1/models" and attempt < 2 else None

    played = play(script)
    assert played.error is None
    assert len(played.drawn) == len(NAMES)
    assert [asked.name for asked in played.asked[:3]] == ["/v1/models"] * 3
    assert len(played.asked) == 3 + len(NAMES)


def test_the_count_of_cases() -> None:
    temporary = len(TEMPORARY) * 3 * 2
    named = len(RETRY_AFTER) * 2 * 3 * 2
    final = len(FINAL) * 3 * 2
    assert temporary + named + final + len(OWN) * 2 * 2 >= 300


def test_a_request_that_breaks_the_server_is_given_up_and_others_go_on() -> None:
    names = [f"n{i}" for i in range(30)]
    played = play(on_victim(Reply(manner="reset"), 10**9), batch("victim", *names))
    assert played.error is None
    assert played.drawn["victim"].finish_reason == "failed"
    assert "while others were answered" in (played.drawn["victim"].error or "")
    assert len(played.posts) == len(names) + endpoint_retry.SUSPICIOUS
    assert all(played.drawn[name].text == name for name in names)


def test_who_alone_fails_is_not_blamed_for_an_endpoint_that_is_down() -> None:
    played = play(always(failure(500)), batch("only"), patience_s=3600)
    assert played.error is not None
    assert "HTTP 500" in str(played.error)
    assert "patience_s" in str(played.error)
    assert 3000 < played.seconds < 3600 + DEADLINE_S
    assert len(played.posts) <= 3600 / 60 + 12


@pytest.mark.parametrize("rest", ["86400", "1e9"])
def test_a_wait_beyond_patience_is_not_begun(rest: str) -> None:
    played = play(always(failure(429, Retry_After=rest)), batch("a", "b"), patience_s=60)
    assert played.error is not None
    assert "resume" in str(played.error)
    assert played.ended == 0
    assert len(played.posts) <= 2


def test_waiting_for_days_fails_nothing() -> None:
    """Patience is for what waits, not for the queue: 40 requests one by one, an hour each."""

    def script(_: int, name: str, attempt: int) -> Reply | None:
        return failure(429, Retry_After="3600") if attempt == 0 and name != "/v1/models" else None

    names = [f"n{i}" for i in range(40)]
    played = play(script, *map(batch, names), concurrency=1, patience_s=5 * 3600)
    assert played.error is None
    assert len(played.drawn) == 40
    assert len(played.posts) == 80


def test_endpoints_take_turns() -> None:
    names = [f"n{i}" for i in range(12)]
    played = play(lambda *_: None, batch(*names), endpoints=3, concurrency=1)
    assert [post.endpoint for post in played.posts] == [0, 1, 2] * 4


def test_an_endpoint_that_rests_leaves_its_work_to_the_others() -> None:
    def script(place: int, name: str, attempt: int) -> Reply | None:
        resting = place == 0 and not name.startswith("/")
        return failure(429, Retry_After="500") if resting else None

    names = [f"n{i}" for i in range(30)]
    played = play(script, batch(*names), endpoints=2, concurrency=4)
    assert len(played.drawn) == 30
    assert played.seconds < 500
    assert 1 <= [post.endpoint for post in played.posts].count(0) <= 4


def test_the_breaker_opens_and_one_request_tries() -> None:
    """All fail until a time: the server is asked ever more rarely, by one request at a time."""
    works_from = 1000.0
    stage: list[Stage] = []
    names = [f"n{i}" for i in range(40)]
    random.seed(0)

    def script(place: int, name: str, attempt: int) -> Reply | None:
        down = stage and 5.0 < stage[0].loop.time() < works_from
        busy = failure(500) if down else None
        return busy or (Reply(200, answer(name).body, manner="drip") if name == "first" else None)

    stage.append(Stage(1, script))
    config = EngineConfig(base_urls=stage[0].urls, canary_s=None, concurrency=16, timeout_s=1e9)
    engine = StagedEngine("unused", config, loop=stage[0].loop)
    feed: Feed[Batch] = Feed()
    feed.put(batch("first"))
    results = engine.generate(feed)
    assert next(results).completions[0].text == "first"
    began = stage[0].loop.time()
    works_from += began
    feed.put(batch(*names))
    feed.finish()
    drawn = [c.text for result in results for c in result.completions]
    engine.close()
    stage[0].close()
    assert sorted(drawn) == sorted(names)
    failed = [post for post in stage[0].posts if post.reply.status == 500]
    at_once = [post for post in failed if post.at == failed[0].at]
    later = [post.at for post in failed if post.at > failed[0].at]
    assert len(at_once) <= 16
    assert all(b - a >= 1.9 for a, b in itertools.pairwise(later))
    assert len(later) <= math.log2(60) + 1 + (works_from - began) / 60
    assert max(b - a for a, b in itertools.pairwise(later)) <= 61


def test_at_most_so_many_are_under_way_also_when_the_number_changes() -> None:
    under_way: list[int] = []
    open_now = 0
    stage: list[Stage] = []

    class Counted(Stage):
        async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
            nonlocal open_now
            if reply.body == b"[]" or b"list" in reply.body:
                return await super()._play(reply, writer)
            open_now += 1
            under_way.append(open_now)
            if len(under_way) == 20:
                engine.configure(EngineConfig(base_urls=self.urls, canary_s=None, concurrency=7))
            await self.loop.stall(writer.get_extra_info("peername")[1], 1.0)
            open_now -= 1
            return await super()._play(reply, writer)

    stage.append(Counted(1, lambda *_: None))
    config = EngineConfig(base_urls=stage[0].urls, canary_s=None, concurrency=3)
    engine = StagedEngine("unused", config, loop=stage[0].loop)
    names = [f"n{i}" for i in range(60)]
    [result] = engine.generate([batch(*names)])
    engine.close()
    stage[0].close()
    assert [c.text for c in result.completions] == names
    assert max(under_way[:20]) == 3
    assert max(under_way) == 7


def test_a_later_deadline_and_patience_count_from_the_next_request_on() -> None:
    stage = Stage(1, lambda place, name, _: Reply(manner="hang") if name == "slow" else None)
    config = EngineConfig(base_urls=stage.urls, canary_s=None, timeout_s=100, patience_s=50)
    engine = StagedEngine("unused", config, loop=stage.loop)
    engine.configure(EngineConfig(base_urls=stage.urls, canary_s=None, timeout_s=7, patience_s=8))
    with pytest.raises(EngineError, match="within 8 s"):
        list(engine.generate([batch("slow")]))
    engine.close()
    stage.close()
    assert 8 < stage.loop.time() < 8 + 7


def test_when_all_are_refused_the_endpoint_is_at_fault_and_no_request() -> None:
    names = [f"n{i}" for i in range(40)]
    played = play(always(failure(400, "no such thing")), *map(batch, names), concurrency=1)
    assert played.error is not None
    assert "no such thing" in str(played.error)
    assert len(played.posts) == REFUSED
    assert not played.drawn, "a request was blamed"


def test_no_request_is_blamed_for_what_the_endpoint_says_of_itself() -> None:
    played = play(lambda *_: failure(400, "no such thing"))
    assert played.error is not None
    assert "no such thing" in str(played.error)
    assert [asked.name for asked in played.asked] == ["/v1/models"]


def test_few_requests_that_are_all_refused_are_refused() -> None:
    played = play(always(failure(400, "no such thing")), batch("a", "b"), batch("c"))
    assert played.error is None
    assert {c.finish_reason for c in played.drawn.values()} == {"failed"}
    assert len(played.drawn) == 3


def test_refusals_are_given_back_to_a_caller_who_waits_for_them() -> None:
    stage = Stage(1, always(failure(400)))
    engine = StagedEngine(
        "unused", EngineConfig(base_urls=stage.urls, canary_s=None), loop=stage.loop
    )
    feed: Feed[Batch] = Feed()
    results = engine.generate(feed)
    for name in ("a", "b"):
        feed.put(batch(name))
        assert next(results).completions[0].finish_reason == "failed"
    feed.finish()
    assert list(results) == []
    engine.close()
    stage.close()


@pytest.mark.parametrize("kind", ["rest", "hang", "down", "full"])
def test_closing_does_not_wait(kind: str) -> None:
    """On the real clock: whatever requests wait for would take an hour."""
    reply = {
        "rest": failure(429, Retry_After="3600"),
        "hang": Reply(manner="hang"),
        "down": failure(500),
        "full": Reply(manner="hang"),
    }[kind]
    stage = Stage(1, always(reply))
    served = threading.Thread(target=stage.loop.run_forever)
    served.start()
    config = EngineConfig(base_urls=stage.urls, canary_s=None, timeout_s=3600, concurrency=2)
    engine = OpenAIEngine("unused", config)
    ended: list[str] = []

    def draw() -> None:
        try:
            list(engine.generate([batch(*NAMES)]))
        except EngineError as error:
            ended.append(str(error))

    caller = threading.Thread(target=draw)
    caller.start()
    wait_until(lambda: len(stage.posts) >= (2 if kind == "full" else 1))
    engine.close()
    caller.join(timeout=300)
    assert ended == ["the engine was closed"]
    with pytest.raises(EngineError, match="closed"):
        list(engine.generate([batch("late")]))
    engine.close()
    stage.loop.call_soon_threadsafe(stage.loop.stop)
    served.join()
    stage.close()


def test_the_key_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Also when the server repeats it, in any form and at any place of its answer."""
    encoded = base64.b64encode(KEY.encode()).decode()
    told = f"{'x' * 200} Bearer {KEY} {encoded}\n{KEY}"
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []
    for status in (400, 401, 402, 429, 500):
        headers = {"X_Key": KEY}
        reply = failure(status, told, KEY, **headers)
        played = play(on_victim(reply, 2), patience_s=100)
        seen += [traceback.format_exception(played.error) if played.error else "", played.drawn]
        page = Reply(status, told.encode(), {"Content-Type": "text/plain"})
        played = play(on_victim(page, 2), patience_s=100)
        seen += [traceback.format_exception(played.error) if played.error else "", played.drawn]
    text = json.dumps([repr(part) for part in seen]) + "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("lpfloop")
    )
    assert "[hidden]" in text
    for secret in (KEY, encoded, KEY[:12], encoded[:16]):
        assert secret not in text


@pytest.mark.parametrize("key", ["two\nlines", "t\xe4st", "\x00"])
def test_a_key_that_no_header_can_carry_is_not_repeated(key: str) -> None:
    with pytest.raises(EngineError, match="LPFLOOP_API_KEY") as caught:
        OpenAIEngine("http://127.0.0.1:9", EngineConfig(api_key=key))
    assert key not in str(caught.value)
    assert repr(key)[1:-1] not in str(caught.value)


def test_a_server_that_serves_the_key_does_not_get_it_shown() -> None:
    models = as_json(200, {"data": [{"id": f"{KEY}-{i}"} for i in range(2)]})
    played = play(lambda *_: models)
    assert played.error is not None
    assert "it serves [hidden]-0, [hidden]-1" in str(played.error)


def test_an_error_leaves_nothing_under_way() -> None:
    reply = failure(429, Retry_After="3600")
    stage = Stage(1, lambda _, name, __: reply if name == "n0" else on_hang(name))
    config = EngineConfig(base_urls=stage.urls, canary_s=None, timeout_s=1e9, patience_s=60)
    engine = StagedEngine("unused", config, loop=stage.loop)
    with pytest.raises(EngineError, match="patience_s"):
        list(engine.generate([batch("n0", "n1", "n2"), batch("n3")]))
    wait_until(lambda: not engine._tasks)
    engine.close()
    stage.close()


def on_hang(name: str) -> Reply | None:
    return None if name.startswith("/") else Reply(manner="hang")


def test_nothing_follows_a_redirect_to_another_host() -> None:
    other = Stage(1, lambda *_: None)
    [url] = other.urls
    for status in (301, 302, 303, 307, 308):
        played = play(lambda *_, s=status: as_json(s, {}, Location=f"{url}/chat/completions"))
        assert played.error is not None
        assert "redirects" in str(played.error)
        assert len(played.asked) == 1
    assert other.asked == []
    other.close()


def test_an_answer_has_only_characters_that_can_be_stored() -> None:
    reply = json.loads(answer("x").body)
    reply["choices"][0]["message"]["content"] = "a\ud800b\U0001f600"
    played = play(always(as_json(200, reply)))
    assert {drawn.text for drawn in played.drawn.values()} == {"a\ufffdb\U0001f600"}


ANSWER_S = 7.0
GARBAGE = (
    Reply(200, PAGE, HTML),
    Reply(200, b'{"choices": [', {"Content-Type": "application/json"}),
    Reply(200, b"not gzip", {"Content-Encoding": "gzip"}),
    Reply(204),
)


class Slow(Stage):
    """Each good answer takes a time; garbage comes at once, as from a proxy."""

    async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if reply not in GARBAGE:
            await self.loop.stall(writer.get_extra_info("peername")[1], ANSWER_S)
        return await super()._play(reply, writer)


def drawn_with_garbage(share: float, concurrency: int, seed: int) -> tuple[float, list[Completion]]:
    """Draw 32 requests of which a share of all replies is garbage; return how long it takes."""
    generator = random.Random(seed)
    random.seed(seed)

    def script(_: int, name: str, attempt: int) -> Reply | None:
        if name == "/v1/models" or generator.random() >= share:
            return None
        return generator.choice(GARBAGE)

    stage = Slow(1, script)
    config = EngineConfig(base_urls=stage.urls, canary_s=None, concurrency=concurrency)
    engine = StagedEngine("unused", config, loop=stage.loop)
    [result] = engine.generate([batch(*(f"n{i}" for i in range(32)))])
    engine.close()
    seconds = stage.loop.time()
    stage.close()
    return seconds, list(result.completions)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("concurrency", [4, 32])
def test_half_garbage_costs_at_most_as_much_again(concurrency: int, seed: int) -> None:
    honest, _ = drawn_with_garbage(0.0, concurrency, seed)
    garbled, drawn = drawn_with_garbage(0.5, concurrency, seed)
    assert [c.text for c in drawn] == [f"n{i}" for i in range(32)]
    assert garbled <= 2 * honest


def test_an_endpoint_that_only_garbles_is_down_after_a_while() -> None:
    names = [f"n{i}" for i in range(40)]
    played = play(always(GARBAGE[0]), batch(*names), concurrency=16, patience_s=600)
    assert played.error is not None
    assert "not that of an OpenAI-compatible endpoint" in str(played.error)
    assert len(played.posts) <= 2 * endpoint_gate.RECENT + 600 / 60 + 12


def test_the_same_script_takes_the_same_time() -> None:
    def once() -> list[tuple[float, str]]:
        played = play(on_victim(failure(500), 6), endpoints=2)
        return [(post.at, post.name) for post in played.posts if post.name == "victim"]

    assert once() == once()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 -0000"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT", "date": "yesterday"}, 20.0),
    ],
)
def test_a_date_is_compared_with_a_clock(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_pause(headers, 100.0) == seconds


@pytest.fixture(autouse=True)
def _jitter() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


def test_constants_fit_each_other() -> None:
    assert endpoint_gate.TRIP_AFTER < endpoint_retry.SUSPICIOUS
