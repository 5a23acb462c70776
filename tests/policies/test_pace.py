"""Requests and tokens a minute: never more than is allowed, shared, and nearly all of it used."""

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from batches import SAMPLING, batches
from endpoints import answering
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_http import Asked, Reply, Stage, failure
from staged_engine import StagedEngine

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.endpoint.pace import PaceBooking, RequestPace

MINUTE_S = 60.0
REALLY = 8
"""Tokens that a scripted answer reports."""


def most_in(seconds: float, events: Sequence[tuple[float, float]]) -> float:
    """Return the most that went in any such time, of (moment, amount) in their order."""
    most = total = 0.0
    first = 0
    for moment, amount in events:
        total += amount
        while events[first][0] + seconds <= moment + 1e-6:
            total -= events[first][1]
            first += 1
        most = max(most, total)
    return most


@settings(max_examples=60)
@given(
    requests=st.integers(1, 40),
    tokens=st.integers(50, 2000),
    asked=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 400), st.floats(0, 1)), min_size=1, max_size=80
    ),
    latency=st.floats(0.1, 90),
)
def test_no_minute_has_more_than_is_allowed_and_nobody_waits_for_ever(
    requests, tokens, asked, latency
):
    pace, now = RequestPace(), 0.0
    pace.limit("all", requests, tokens)
    waiting = {who: [a for a in asked if a[0] == who] for who in range(3)}
    due = dict.fromkeys(waiting, 0.0)
    went: list[tuple[float, PaceBooking]] = []
    answers: list[tuple[float, PaceBooking, int]] = []
    while any(waiting.values()):
        who = min((w for w in waiting if waiting[w]), key=lambda w: (due[w], w))
        now = max(now, due[who])
        for at, booking, used in [a for a in answers if a[0] <= now]:
            pace.correct(booking, used)
            answers.remove((at, booking, used))
        _, most, share = waiting[who][0]
        told = pace.book(who, most, now)
        if isinstance(told, PaceBooking):
            waiting[who].pop(0)
            went.append((now, told))
            answers.append((now + latency, told, max(1, int(share * most))))
        else:
            assert 0 < told <= MINUTE_S + 1e-6
            due[who] = now + told
    for _, booking, used in answers:
        pace.correct(booking, used)
    assert len(went) == len(asked)
    assert most_in(MINUTE_S, [(at, 1) for at, _ in went]) <= requests
    assert most_in(6.0, [(at, 1) for at, _ in went]) <= -(-requests // 10)
    alone = max(*(most for _, most, _ in asked), tokens)
    assert most_in(MINUTE_S, [(at, booking.tokens) for at, booking in went]) <= alone


def test_who_waits_is_next_and_who_stays_away_loses_the_turn():
    pace = RequestPace()
    pace.limit("both", 100, 100)
    assert isinstance(pace.book("small", 90, 0.0), PaceBooking)
    assert pace.book("large", 100, 1.0) == 1.0, "it asks again, as the small one may cost less"
    assert isinstance(pace.book("large", 100, 1.5), float)
    assert isinstance(pace.book("small", 5, 2.0), float), "the large one came first"
    assert isinstance(pace.book("large", 100, 60.0), PaceBooking)
    assert isinstance(pace.book("large", 100, 120.0), PaceBooking)
    assert isinstance(pace.book("large", 10, 121.0), float)
    assert isinstance(pace.book("small", 5, 200.0), PaceBooking), "the other did not come back"


def draw(stage: Stage, count: int, config: EngineConfig) -> tuple[list[str], float]:
    """Let an engine draw; return its texts, and how long it took."""
    began = stage.loop.time()
    engine = StagedEngine("unused", config, loop=stage.loop)
    texts = [c.text for result in engine.generate(batches(count)) for c in result.completions]
    seconds = stage.loop.time() - began
    engine.close()
    return texts, seconds


def limited(stage: Stage, **limits: int) -> EngineConfig:
    return EngineConfig(
        base_urls=stage.urls, canary_s=None, concurrency=64, timeout_s=1e6, **limits
    )


def moments(posts: Sequence[Asked], amount: float = 1.0) -> list[tuple[float, float]]:
    return [(post.at, amount) for post in posts]


def test_an_engine_keeps_to_its_requests_a_minute_and_uses_them():
    stage = Stage(1, lambda *_: None)
    texts, ended = draw(stage, 300, limited(stage, requests_per_minute=60))
    posts = stage.posts
    stage.close()
    assert sorted(texts) == sorted(f"n{i}" for i in range(300))
    assert most_in(MINUTE_S, moments(posts)) == 60
    assert ended == pytest.approx(300 - 6, abs=7)


def test_tokens_count_with_what_they_may_cost_and_then_with_what_they_did():
    stage = Stage(1, lambda *_: None)
    may = 1 + 4 + SAMPLING.max_tokens
    texts, ended = draw(stage, 380, limited(stage, tokens_per_minute=REALLY * 100))
    posts = stage.posts
    stage.close()
    assert len(texts) == 380
    assert most_in(MINUTE_S, moments(posts, REALLY)) <= REALLY * 100
    assert may > REALLY, "else nothing is corrected"
    assert ended == pytest.approx(3 * MINUTE_S, abs=20)


def test_each_endpoint_has_a_pace_of_its_own():
    stage = Stage(2, lambda *_: None)
    _, ended = draw(stage, 240, limited(stage, requests_per_minute=60))
    by_endpoint = Counter(post.endpoint for post in stage.posts)
    stage.close()
    assert min(by_endpoint.values()) > 100
    assert ended <= 2 * MINUTE_S


def test_waiting_for_the_own_limit_is_not_waiting_for_the_endpoint():
    stage = Stage(1, lambda *_: None)
    config = limited(stage, requests_per_minute=10).model_copy(update={"patience_s": 5.0})
    texts, ended = draw(stage, 64, config)
    stage.close()
    assert len(texts) == 64
    assert ended > 5 * MINUTE_S


def test_a_retry_after_is_heeded_besides():
    def script(place: int, name: str, attempt: int) -> Reply | None:
        return failure(429, Retry_After="90") if (name, attempt) == ("n20", 0) else None

    stage = Stage(1, script)
    texts, _ = draw(stage, 60, limited(stage, requests_per_minute=30))
    posts = stage.posts
    stage.close()
    assert len(texts) == 60
    asked_to_wait = next(post.at for post in posts if post.reply.status == 429)
    later = [post.at for post in posts if post.at > asked_to_wait]
    assert min(later) >= asked_to_wait + 90
    assert most_in(MINUTE_S, moments(posts)) <= 30


def test_engines_of_one_endpoint_and_key_share_its_pace_and_a_closed_one_limits_nobody(
    monkeypatch,
):
    """Both ask at once, in real time: six seconds have a tenth of the 60 requests."""
    told: list[tuple[float, PaceBooking | float]] = []
    book = RequestPace.book

    def noted(pace: RequestPace, who: object, tokens: int, now: float) -> PaceBooking | float:
        found = book(pace, who, tokens, now)
        told.append((now, found))
        return found

    monkeypatch.setattr(RequestPace, "book", noted)
    with answering(lambda _: "Yes.") as url:
        config = EngineConfig(base_urls=(url,), requests_per_minute=60)
        engines = [OpenAIEngine("unused", config) for _ in range(2)]
        threads = [
            threading.Thread(target=list, args=(engine.generate(batches(4)),)) for engine in engines
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        went = sorted(now for now, found in told if isinstance(found, PaceBooking))
        assert len(went) == 8
        assert most_in(6.0, [(now, 1) for now in went]) <= 6
        waits = [found for _, found in told if isinstance(found, float)]
        assert 0 < max(waits) <= 6.0
        for engine in engines:
            engine.close()
        told.clear()
        unlimited = OpenAIEngine("unused", config.model_copy(update={"requests_per_minute": None}))
        assert len(list(unlimited.generate(batches(40)))) == len(batches(40))
        assert all(isinstance(found, PaceBooking) for _, found in told)
        unlimited.close()
