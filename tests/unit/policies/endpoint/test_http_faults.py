"""Faults of an endpoint, over several attempts, on real sockets and a virtual clock."""

import asyncio
import base64
import gzip
import itertools
import json
import logging
import random
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from clock import Asked, Reply, Script, Stage, StagedEngine, answer, as_json, failure

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.faults import LONGEST_PAUSE_S
from lpfloop.policies.endpoint.openai_engine import CHECK, DENIED, REFUSED, OpenAIEngine
from lpfloop.policies.endpoint.queue import GIVEN_UP_AT
from lpfloop.policies.engines.engine import (
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
    Source,
)
from lpfloop.stores.records import Message

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=7)
KEY = "canary-key/0123456789+abcdef"
DEADLINE_S = 60.0
RETRY_TIMEOUT_S = 1e5
NAMES = ("victim", "second", "third")
ANSWERED = {name: name for name in NAMES}
SHORT = CHECK[0].content
"""The name of the short question that tests whether an endpoint answers."""
HTML = {"Content-Type": "text/html"}
PAGE = b"<html><body>We will be back soon.</body></html>"


def batch(*names: str) -> Batch:
    requests = tuple(
        Request(request_id=name, messages=(Message(role="user", content=name),), seed=i)
        for i, name in enumerate(names)
    )
    return Batch(key="-".join(names), requests=requests, sampling=SAMPLING)


class Played:
    """Requests, answers and error of one engine."""

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
    retry_timeout_s: float = RETRY_TIMEOUT_S,
) -> Played:
    """Draw `batches` from endpoints with the script `script`."""
    random.seed(0)
    stage = Stage(endpoints, script)
    config = EngineConfig(
        base_urls=stage.urls,
        api_key=KEY,
        concurrency=concurrency,
        timeout_s=DEADLINE_S,
        retry_timeout_s=retry_timeout_s,
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
    drawn = {c.request_id: c for result in results for c in result.answers}
    return Played(stage, drawn, error)


def always(reply: Reply) -> Script:
    """Answer every chat completion with `reply`."""
    return lambda _, name, attempt: None if name.startswith("/") else reply


def on(start: str, reply: Reply) -> Script:
    """Answer requests whose name begins with `start` with `reply`, and others well."""
    return lambda _, name, __: reply if name.startswith(start) else None


def on_victim(reply: Reply, attempts: int) -> Script:
    """Answer the first `attempts` of one request with `reply`, and everything else well."""
    return lambda _, name, attempt: reply if name == "victim" and attempt < attempts else None


TEMPORARY: dict[str, Reply] = {
    **{f"HTTP {status}": failure(status) for status in (408, 429, 503)},
    "HTTP 503, huge": Reply(503, b"x", manner="endless"),
    "reset": Reply(manner="reset"),
    "half a body": Reply(200, answer("victim").body, manner="cut"),
    "hang": Reply(manner="hang"),
    "slow drip": Reply(200, answer("victim").body, manner="drip"),
    "HTML with status 200": Reply(200, PAGE, HTML),
    "empty": Reply(200, b""),
    "bad gzip": Reply(200, b"not gzip", {"Content-Encoding": "gzip"}),
    "not HTTP": Reply(200, b"", {"Content-Length": "many"}),
    "deep JSON": Reply(200, b"[" * 100_000, {"Content-Type": "application/json"}),
}

SLOW = ("hang", "slow drip")
"""Faults that take the whole deadline of an attempt."""

NO_COMPLETIONS = (
    None,
    [],
    {"error": {"message": "overloaded"}},
    {"choices": []},
    {"choices": "abc"},
    {"choices": [{"message": None}]},
    {"choices": [{"message": {"content": 5}}]},
    {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [5]}}]},
)

SERVER_DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
RETRY_AFTER = {
    "7": 7.0,
    "0": None,
    "1000000000": LONGEST_PAUSE_S,
    "nan": None,
    "soon": None,
    "Wed, 21 Oct 2026 07:28:45 GMT": 45.0,
    "Wed, 21 Oct 2026 07:27:00 GMT": None,
}

FINAL = {
    "HTTP 401": (failure(401, f"Incorrect API key: {KEY}"), "refuses the API key"),
    "HTTP 407": (failure(407), "HTTP 407"),
    "spent": (failure(429, "pay", "insufficient_quota", Retry_After="1"), "quota"),
    "redirect": (as_json(302, {}, Location="http://169.254.169.254/latest"), "redirects"),
}

DENIED_REPLIES = {
    **{f"HTTP {status}": failure(status, "is not nice") for status in (402, 403, 404, 424, 451)},
    "200 with an error": as_json(200, {"error": {"message": "not nice", "code": 403}}),
    "200 with a code": as_json(200, {"code": "402", "msg": "not nice", "data": None}),
}
"""Replies that concern one request, or the key, the account or the address."""

OWN = {
    "HTTP 400": failure(400, "the text is not nice"),
    **DENIED_REPLIES,
    "endless answer": Reply(200, manner="endless"),
    "gzip bomb": Reply(200, gzip.compress(b" " * 2**25), {"Content-Encoding": "gzip"}),
    "brackets": Reply(200, b'{"choices": [' + b"{}," * 300_000 + b"{}]}"),
}


def gaps_are_kept(posts: list[Asked], rest_s: float) -> bool:
    """Return whether an endpoint got no request during its Retry-After."""
    told = [(post.at, post.endpoint) for post in posts if "Retry-After" in post.reply.headers]
    return not any(
        at < post.at < at + rest_s - 0.01 and post.endpoint == endpoint
        for at, endpoint in told
        for post in posts
    )


def test_temporary_faults(subtests):
    factors = itertools.cycle([(1, 1), (6, 3), (3, 1), (1, 3), (6, 1)])
    for kind, (most, endpoints) in zip(TEMPORARY, factors, strict=False):
        attempts = min(most, 3) if kind in SLOW else most
        with subtests.test(kind=kind, attempts=attempts, endpoints=endpoints):
            played = play(on_victim(TEMPORARY[kind], attempts), endpoints=endpoints)
            assert played.error is None
            assert {name: drawn.text for name, drawn in played.drawn.items()} == ANSWERED
            assert len(played.posts) == len(NAMES) + attempts


def test_no_completion(subtests):
    for value in NO_COMPLETIONS:
        with subtests.test(value=value):
            played = play(on_victim(as_json(200, value), 2))
            assert played.error is None
            assert played.drawn["victim"].text == "victim"
            assert len(played.posts) == len(NAMES) + 2


def test_retry_after(subtests):
    factors = itertools.cycle([(429, 1, 1), (503, 3, 3), (503, 9, 1), (429, 9, 3), (503, 1, 3)])
    for asked, (status, attempts, endpoints) in zip(RETRY_AFTER, factors, strict=False):
        with subtests.test(asked=asked, status=status, attempts=attempts, endpoints=endpoints):
            reply = failure(status, Retry_After=asked, Date=SERVER_DATE)
            played = play(on_victim(reply, attempts), endpoints=endpoints)
            rest = RETRY_AFTER[asked] or 0.0
            assert played.error is None
            assert {name: drawn.text for name, drawn in played.drawn.items()} == ANSWERED
            assert len(played.posts) == len(NAMES) + attempts
            assert gaps_are_kept(played.posts, rest)
            assert played.seconds >= attempts // endpoints * rest - 0.01


def test_final_faults(subtests):
    factors = itertools.cycle([(0, 1), (3, 3), (1, 1), (0, 3)])
    for (kind, (reply, word)), (before, endpoints) in zip(FINAL.items(), factors, strict=False):
        with subtests.test(kind=kind, before=before, endpoints=endpoints):
            replies = {number: failure(503) for number in range(before)}
            played = play(
                lambda _, name, attempt, first=replies, last=reply: (
                    first.get(attempt, last) if name == "victim" else None
                ),
                batch("victim", *(f"n{i}" for i in range(20))),
                endpoints=endpoints,
                concurrency=1,
            )
            assert word in str(played.error)
            [last] = [number for number, post in enumerate(played.posts) if post.reply is reply]
            # That endpoint got no more requests, and the others only those already under way.
            elsewhere = {post.endpoint for post in played.posts[last + 1 :]}
            assert played.posts[last].endpoint not in elsewhere
            assert len(played.posts) - last <= endpoints
            attempts = [post.attempt for post in played.posts if post.name == "victim"]
            assert attempts == list(range(before + 1))
            assert KEY not in "".join(traceback.format_exception(played.error))


def test_own_faults(subtests):
    factors = itertools.cycle([(0, 1), (2, 2), (2, 1), (0, 2)])
    for (kind, reply), (before, endpoints) in zip(OWN.items(), factors, strict=False):
        with subtests.test(kind=kind, before=before, endpoints=endpoints):
            replies = {number: failure(502) for number in range(before)}
            played = play(
                lambda _, name, attempt, first=replies, last=reply: (
                    first.get(attempt, last) if name == "victim" else None
                ),
                endpoints=endpoints,
            )
            assert played.error is None
            victim = played.drawn["victim"]
            assert (victim.finish_reason, victim.text) == ("failed", "")
            assert victim.error
            assert "not nice" in victim.error or "larger" in victim.error
            assert {played.drawn[name].text for name in NAMES[1:]} == {"second", "third"}
            checks = [post for post in played.posts if post.name == SHORT]
            assert len(played.posts) == len(NAMES) + before + len(checks)
            assert len(checks) == (kind in DENIED_REPLIES)


def test_poisonous_request() -> None:
    names = [f"n{i}" for i in range(30)]
    played = play(on_victim(Reply(manner="reset"), 10**9), batch("victim", *names))
    assert played.error is None
    assert played.drawn["victim"].finish_reason == "failed"
    assert "while others were answered" in (played.drawn["victim"].error or "")
    assert len([post for post in played.posts if post.name == SHORT]) == 1
    assert len(played.posts) == len(names) + 1 + GIVEN_UP_AT
    assert all(played.drawn[name].text == name for name in names)


def test_garbage_half_of_the_time() -> None:
    """Every second reply is garbage, for any request: each request costs at most two."""
    garbage = itertools.cycle(
        [TEMPORARY["HTML with status 200"], TEMPORARY["empty"], TEMPORARY["bad gzip"], Reply(204)]
    )
    turn = itertools.count()
    names = [f"n{i}" for i in range(32)]
    played = play(
        lambda _, name, __: None if name.startswith("/") or next(turn) % 2 else next(garbage),
        batch(*names),
        concurrency=8,
    )
    assert played.error is None
    assert {name: drawn.text for name, drawn in played.drawn.items()} == {n: n for n in names}
    assert len(played.posts) <= 2 * len(names)


def test_endpoint_down() -> None:
    played = play(always(failure(500)), batch("only"), retry_timeout_s=3600)
    assert played.error is not None
    assert "HTTP 500" in str(played.error)
    assert "retry_timeout_s" in str(played.error)
    assert 3000 < played.seconds < 3600 + DEADLINE_S
    assert len(played.posts) <= 3600 / 60 + 12


def test_wait_beyond_patience() -> None:
    played = play(always(failure(429, Retry_After="86400")), batch("a", "b"), retry_timeout_s=60)
    assert played.error is not None
    assert "resume" in str(played.error)
    assert played.ended == 0
    assert len(played.posts) <= 2


def test_concurrency() -> None:
    under_way: list[int] = []
    open_now = 0

    class Counted(Stage):
        async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
            nonlocal open_now
            if reply.body == b"[]" or b"list" in reply.body:
                return await super()._play(reply, writer)
            open_now += 1
            under_way.append(open_now)
            if len(under_way) == 20:
                engine.configure(EngineConfig(base_urls=self.urls, concurrency=7))
            await self.loop.stall(writer.get_extra_info("peername")[1], 1.0)
            open_now -= 1
            return await super()._play(reply, writer)

    stage = Counted(1, lambda *_: None)
    config = EngineConfig(base_urls=stage.urls, concurrency=3)
    engine = StagedEngine("unused", config, loop=stage.loop)
    names = [f"n{i}" for i in range(60)]
    [result] = engine.generate([batch(*names)])
    engine.close()
    stage.close()
    assert [c.text for c in result.answers] == names
    assert max(under_way[:20]) == 3
    assert max(under_way) == 7


def test_all_refused() -> None:
    names = [f"n{i}" for i in range(40)]
    played = play(always(failure(400, "no such thing")), *map(batch, names), concurrency=1)
    assert played.error is not None
    assert "no such thing" in str(played.error)
    assert len(played.posts) == REFUSED + 1
    assert not played.drawn, "a request was blamed"


def test_long_run_of_refusals() -> None:
    """The endpoint refuses sixty requests in a row, but answers the short question."""
    names = [f"n{i}" for i in range(60)]
    played = play(on("n", failure(400, "filtered")), batch(*names), batch("last"))
    assert played.error is None
    assert {played.drawn[name].finish_reason for name in names} == {"failed"}
    assert played.drawn["last"].text == "last"


def test_denied_from_some_time_on(subtests):
    """In the middle of a run, the credit ends, or the key is revoked."""
    for kind, reply in DENIED_REPLIES.items():
        with subtests.test(kind=kind):
            turn = itertools.count()
            played = play(
                lambda _, name, __, r=reply, t=turn: (
                    None if name.startswith("/") or next(t) < 20 else r
                ),
                *(batch(*(f"{start}.{i}" for i in range(5))) for start in range(40)),
            )
            assert "not nice" in str(played.error)
            assert {drawn.finish_reason for drawn in played.drawn.values()} == {"stop"}
            assert len(played.posts) <= 20 + 4


def test_only_short_question_answered() -> None:
    """The remaining credit pays for the short question only."""
    names = [f"n{i}" for i in range(200)]
    played = play(on("n", failure(402, "no credits")), *map(batch, names))
    assert "no credits" in str(played.error)
    failed = [drawn for drawn in played.drawn.values() if drawn.finish_reason == "failed"]
    assert DENIED // 2 < len(failed) <= DENIED
    assert "no credits" in (failed[0].error or "")


def test_denied_first_request() -> None:
    for reply in DENIED_REPLIES.values():
        played = play(on_victim(reply, 10**9), batch("victim"))
        assert played.error is None
        assert played.drawn["victim"].finish_reason == "failed"
        assert "not nice" in (played.drawn["victim"].error or "")


def test_lone_poisonous_request(subtests):
    """It is the last request: the short question shows that the endpoint works."""
    for kind in ("reset", "HTML with status 200", "empty", "no choices", "HTTP 500"):
        reply = {
            **TEMPORARY,
            "no choices": as_json(200, {"choices": []}),
            "HTTP 500": failure(500),
        }[kind]
        with subtests.test(kind=kind):
            played = play(on_victim(reply, 10**9), batch("victim"))
            assert played.error is None
            assert played.drawn["victim"].finish_reason == "failed"
            assert played.ended < 300


def test_outage_blames_no_request() -> None:
    """The endpoint answered others before and after an outage of an hour."""

    class Broken(Stage):
        async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
            now = self.loop.time()
            await self.loop.stall(writer.get_extra_info("peername")[1], 1.0)
            return await super()._play(failure(500) if 10 < now < 3600 else reply, writer)

    stage = Broken(1, lambda *_: None)
    config = EngineConfig(base_urls=stage.urls, concurrency=4)
    engine = StagedEngine("unused", config, loop=stage.loop)
    names = [f"n{i}" for i in range(80)]
    [result] = engine.generate([batch(*names)])
    engine.close()
    stage.close()
    assert [c.text for c in result.answers] == names


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (as_json(200, {"error": {"message": "no\x1bbalance"}}), "'no balance'"),
        (as_json(200, {"error": "upstream busy"}), "upstream busy"),
        (as_json(200, {"code": 500, "msg": "not today"}), "not today"),
        (as_json(200, {"choices": [{"error": {"message": "no luck"}}]}), "no luck"),
        (Reply(200, PAGE, HTML), "We will be back soon"),
        (Reply(200, b'data: {"choices": []}'), "data: {"),
        (as_json(200, {"choices": []}), "choices"),
        (Reply(200, b""), "OpenAI-compatible"),
    ],
    ids=["no-balance", "text", "code", "choice", "page", "stream", "no-choices", "nothing"],
)
def test_nothing_readable(subtests, reply, told):
    """An endpoint that never gave an answer ends the run soon, with the endpoint's message."""
    for names in [["only"], [f"n{i}" for i in range(100)]]:
        with subtests.test(requests=len(names)):
            played = play(always(reply), batch(*names), concurrency=64)
            assert told in str(played.error)
            assert played.ended < 60
            assert not played.drawn


def test_few_refused() -> None:
    played = play(always(failure(400, "no such thing")), batch("a", "b"), batch("c"))
    assert played.error is None
    assert {c.finish_reason for c in played.drawn.values()} == {"failed"}
    assert len(played.drawn) == 3


def test_close() -> None:
    """On the real clock: the requests would otherwise wait for an hour."""
    met, ended = threading.Semaphore(0), list[str]()

    def script(_: int, name: str, __: int) -> Reply | None:
        return None if name.startswith("/") else met.release() or Reply(manner="hang")

    stage = Stage(1, script)
    served = threading.Thread(target=stage.loop.run_forever, daemon=True)
    served.start()
    config = EngineConfig(base_urls=stage.urls, timeout_s=3600, concurrency=2)
    engine = OpenAIEngine("unused", config)
    caller = threading.Thread(target=draw_all, args=(engine, ended), daemon=True)
    caller.start()
    for _ in range(2):
        met.acquire()
    engine.close()
    caller.join()
    assert ended == ["the engine was closed"]
    with pytest.raises(EngineError, match="closed"):
        list(engine.generate([batch("late")]))
    stage.loop.call_soon_threadsafe(stage.loop.stop)
    served.join()
    stage.close()


class Asking(Source[Batch]):
    """A source of one batch whose owner stops at the first failed request."""

    def __init__(self, failed: threading.Event) -> None:
        self._batches = iter([batch(*NAMES)])
        self._failed = failed

    @property
    def stopping(self) -> bool:
        return self._failed.is_set()

    def __next__(self) -> Batch:
        return next(self._batches)


def test_stop_between_attempts() -> None:
    """On the real clock: lpfloop would otherwise retry the requests for a day."""
    failed = threading.Event()

    def script(_: int, name: str, __: int) -> Reply | None:
        return None if name.startswith("/") else failed.set() or failure(500)

    stage = Stage(1, script)
    served = threading.Thread(target=stage.loop.run_forever, daemon=True)
    served.start()
    engine = OpenAIEngine("unused", EngineConfig(base_urls=stage.urls))
    assert list(engine.generate(Asking(failed))) == []
    assert failed.is_set()
    engine.close()
    stage.loop.call_soon_threadsafe(stage.loop.stop)
    served.join()
    stage.close()


def draw_all(engine: OpenAIEngine, ended: list[str]) -> None:
    """Use an engine; record its error."""
    try:
        list(engine.generate([batch(*NAMES)]))
    except EngineError as error:
        ended.append(str(error))


def test_key_is_hidden(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the server repeats it, in any form and at any place of its answer."""
    encoded = base64.b64encode(KEY.encode()).decode()
    told = f"{'x' * 200} Bearer {KEY} {encoded}\n{KEY}"
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []
    for status in (200, 400, 401, 402, 403, 429, 500):
        headers = {"X_Key": KEY}
        reply = failure(status, told, KEY, **headers)
        played = play(on_victim(reply, 2), retry_timeout_s=100)
        seen += [traceback.format_exception(played.error) if played.error else "", played.drawn]
        page = Reply(status, told.encode(), {"Content-Type": "text/plain"})
        played = play(on_victim(page, 2), retry_timeout_s=100)
        seen += [traceback.format_exception(played.error) if played.error else "", played.drawn]
    text = json.dumps([repr(part) for part in seen]) + "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("lpfloop")
    )
    assert "[hidden]" in text
    for secret in (KEY, encoded, KEY[:12], encoded[:16]):
        assert secret not in text


def test_unusable_key() -> None:
    for key in ["two\nlines", "t\xe4st", "\x00"]:
        with pytest.raises(EngineError, match="LPFLOOP_API_KEY") as caught:
            OpenAIEngine("http://127.0.0.1:9", EngineConfig(api_key=key))
        assert repr(key)[1:-1] not in str(caught.value)


def test_no_redirects() -> None:
    other = Stage(1, lambda *_: None)
    [url] = other.urls
    for status in (301, 302, 303, 307, 308):
        played = play(lambda *_, s=status: as_json(s, {}, Location=f"{url}/chat/completions"))
        assert played.error is not None
        assert "redirects" in str(played.error)
        assert len(played.asked) == 1
    assert other.asked == []
    other.close()


def test_surrogates() -> None:
    reply = json.loads(answer("x").body)
    reply["choices"][0]["message"]["content"] = "a\ud800b\U0001f600"
    played = play(always(as_json(200, reply)))
    assert {drawn.text for drawn in played.drawn.values()} == {"a\ufffdb\U0001f600"}


@pytest.fixture(autouse=True)
def _jitter() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)
