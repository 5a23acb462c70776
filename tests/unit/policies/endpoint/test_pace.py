"""Requests and tokens a minute: never more than is allowed, shared, and nearly all of it used."""

from collections.abc import Sequence

import pytest
from clock import Asked, Stage, StagedEngine, batches
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.pace import PaceBooking, RequestPace

MINUTE_S = 60.0


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


@given(
    requests=st.integers(1, 40),
    tokens=st.integers(50, 2000),
    asked=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 400), st.floats(0, 1)), min_size=1, max_size=80
    ),
    latency=st.floats(0.1, 90),
)
def test_no_minute_has_more_than_its_limit(requests, tokens, asked, latency):
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


def draw(stage: Stage, count: int, config: EngineConfig) -> tuple[list[str], float]:
    """Let an engine draw; return its texts, and how long it took."""
    began = stage.loop.time()
    engine = StagedEngine("unused", config, loop=stage.loop)
    texts = [c.text for result in engine.generate(batches(count)) for c in result.completions]
    seconds = stage.loop.time() - began
    engine.close()
    return texts, seconds


def limited(stage: Stage, **limits: int) -> EngineConfig:
    return EngineConfig(base_urls=stage.urls, concurrency=64, timeout_s=1e6, **limits)


def moments(posts: Sequence[Asked], amount: float = 1.0) -> list[tuple[float, float]]:
    return [(post.at, amount) for post in posts]


def test_requests_a_minute():
    stage = Stage(1, lambda *_: None)
    texts, ended = draw(stage, 300, limited(stage, requests_per_minute=60))
    posts = stage.posts
    stage.close()
    assert sorted(texts) == sorted(f"n{i}" for i in range(300))
    assert most_in(MINUTE_S, moments(posts)) == 60
    assert ended == pytest.approx(300 - 6, abs=7)
