"""When requests go to which endpoint: busy endpoints, single bad rows, rate limits."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from itertools import pairwise

import pytest
from clock import Reply, Stage, StagedEngine, batches, failure
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import CHECK
from lpfloop.policies.endpoint.queue import Booking, RateLimit
from lpfloop.policies.engines.engine import Completion

ANSWER_S = 4.0
MINUTE_S = 60.0
VICTIM = "n5"


class Slow(Stage):
    """Endpoints that take `ANSWER_S` for an answer, and refuse a request at once by `refuses`."""

    def __init__(self, endpoints: int, refuses: Callable[["Slow", str], Reply | None]) -> None:
        self.in_flight = 0
        super().__init__(endpoints, lambda _, name, __: self._met(refuses, name))

    def _met(self, refuses: Callable[["Slow", str], Reply | None], name: str) -> Reply | None:
        return None if name.startswith("/") else refuses(self, name)

    async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if b'"choices"' in reply.body:
            self.in_flight += 1
            try:
                await self.loop.stall(writer.get_extra_info("peername")[1], ANSWER_S)
            finally:
                self.in_flight -= 1
        return await super()._play(reply, writer)


def draw(stage: Stage, count: int, **settings: float) -> dict[str, Completion]:
    """Draw so many answers, and end the stage."""
    random.seed(0)
    given = {"base_urls": stage.urls, "concurrency": 4, "timeout_s": 60, **settings}
    engine = StagedEngine("unused", EngineConfig.model_validate(given), loop=stage.loop)
    try:
        drawn = [c for result in engine.generate(batches(count)) for c in result.answers]
    finally:
        engine.close()
        stage.close()
    assert sorted(c.request_id for c in drawn) == sorted(f"n{i}" for i in range(count))
    return {c.request_id: c for c in drawn}


def failed(drawn: dict[str, Completion]) -> list[str]:
    return [name for name, c in drawn.items() if c.finish_reason == "failed"]


@pytest.mark.parametrize(
    "busy",
    [failure(503, "later"), failure(429, "later"), failure(408, "later", Retry_After="9")],
    ids=["503", "429", "408 with Retry-After"],
)
def test_row_that_is_always_refused_as_busy(busy):
    """The server always rejects one row as busy but answers others: lpfloop gives the row up."""
    stage = Slow(1, lambda _, name: busy if name == VICTIM else None)
    drawn = draw(stage, 288)
    assert failed(drawn) == [VICTIM]
    assert "while others were answered" in (drawn[VICTIM].error or "")
    attempts = [post for post in stage.posts if post.name == VICTIM]
    assert 16 <= len(attempts) <= 32
    assert attempts[-1].at < 900


def test_last_row_is_always_refused_as_busy():
    """It is the last row: short questions show that the endpoint answers."""
    stage = Slow(1, lambda _, name: failure(503) if name == VICTIM else None)
    drawn = draw(stage, 8)
    assert failed(drawn) == [VICTIM]
    assert stage.loop.time() < 3600
    assert 1 <= len([post for post in stage.posts if post.name == CHECK[0].content]) <= 4


def test_row_that_is_never_answered():
    stage = Slow(1, lambda _, name: Reply(manner="hang") if name == VICTIM else None)
    drawn = draw(stage, 288)
    assert failed(drawn) == [VICTIM]
    assert Counter(post.name for post in stage.posts)[VICTIM] == 4


def test_crowded_endpoint():
    """The endpoint takes four requests at a time: it answers all, and rejects few."""
    stage = Slow(1, lambda own, _: failure(429) if own.in_flight >= 4 else None)
    drawn = draw(stage, 160, concurrency=16)
    assert failed(drawn) == []
    assert len(stage.posts) < 2 * 160
    assert stage.loop.time() < 4 * 160 / 4 * ANSWER_S


def test_limited_endpoint():
    """It answers 30 requests in any minute, and others with 429: lpfloop blames no row."""
    answered = deque[float]()

    def refuses(stage: Slow, _: str) -> Reply | None:
        now = stage.loop.time()
        while answered and answered[0] + MINUTE_S <= now:
            answered.popleft()
        if len(answered) >= 30:
            return failure(429)
        answered.append(now)
        return None

    drawn = draw(Slow(1, refuses), 96, concurrency=32)
    assert failed(drawn) == []


def test_two_endpoints_share_the_work():
    stage = Slow(2, lambda *_: None)
    draw(stage, 64)
    shares = Counter(post.endpoint for post in stage.posts)
    assert shares[0] == pytest.approx(32, abs=4)


def test_failed_request_moves_to_other_endpoint():
    stage = Stage(2, lambda place, name, _: failure(500) if place == 0 and name == VICTIM else None)
    assert failed(draw(stage, 32)) == []
    assert [post.endpoint for post in stage.posts if post.name == VICTIM][-1] == 1
    assert Counter(post.name for post in stage.posts)[VICTIM] <= 2


def test_requests_a_minute():
    stage = Stage(1, lambda *_: None)
    draw(stage, 120, concurrency=64, requests_per_minute=60)
    moments = sorted(post.at for post in stage.posts)
    gaps = [later - before for before, later in pairwise(moments)]
    assert min(gaps) == pytest.approx(1.0)
    assert moments[-1] == pytest.approx(119, abs=1)


def test_tokens_a_minute():
    """A request counts with its maximal tokens until its answer, then with its real cost: 8."""
    stage = Slow(1, lambda *_: None)
    draw(stage, 64, concurrency=64, tokens_per_minute=200)
    moments = sorted(post.at for post in stage.posts)
    most = max(sum(at <= m < at + MINUTE_S for m in moments) for at in moments)
    assert 200 // 8 - 5 <= most <= 200 // 8


@given(
    requests=st.integers(1, 40) | st.none(),
    tokens=st.integers(400, 2000) | st.none(),
    asked=st.lists(st.tuples(st.integers(1, 400), st.floats(0, 1)), min_size=1, max_size=80),
    latency=st.floats(0.1, 90),
)
def test_no_minute_has_more_than_its_limit(requests, tokens, asked, latency):
    limit, now = RateLimit(), 0.0
    sent: list[Booking] = []
    answers: list[tuple[float, Booking, int]] = []
    for most, share in asked:
        while True:
            for at, booking, used in [a for a in answers if a[0] <= now]:
                limit.settle(booking, used)
                answers.remove((at, booking, used))
            booked = limit.book(requests, tokens, most, now)
            if isinstance(booked, Booking):
                break
            assert 0 < booked <= MINUTE_S
            now += booked
        sent.append(booked)
        answers.append((now + latency, booked, int(share * most)))
    for first in sent:
        minute = [b for b in sent if first.at <= b.at < first.at + MINUTE_S - 1e-6]
        assert requests is None or len(minute) <= requests
        assert tokens is None or sum(b.tokens for b in minute) <= tokens
