"""Several endpoints: who gets which request, how fast they are together, who rests and returns."""

import asyncio
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from batches import SLICE, batches
from scripted_http import Asked, Reply, Script, Stage, failure
from staged_engine import StagedEngine
from virtual import VirtualLoop
from waiting import wait_until

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.gate import TRIP_AFTER, Passage
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.endpoint.retry import Errand
from lpfloop.policies.endpoint.traffic import Traffic
from lpfloop.policies.engines.engine import Batch, Completion, EngineError

FAST_S, SLOW_S = 0.05, 1.0
SLOTS = 4


class Paced(Stage):
    """Each endpoint takes a time of its own for a good answer to a chat completion."""

    def __init__(self, latencies: Sequence[float], script: Script = lambda *_: None) -> None:
        super().__init__(len(latencies), script)
        ports = [int(url.rpartition(":")[2].removesuffix("/v1")) for url in self.urls]
        self._latencies = dict(zip(ports, latencies, strict=True))
        self.under_way: Counter[int] = Counter()
        self.most: Counter[int] = Counter()

    async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        port = writer.get_extra_info("sockname")[1]
        if reply.status == 200 and b"choices" in reply.body:
            self.under_way[port] += 1
            self.most[port] = max(self.most[port], self.under_way[port])
            await self.loop.stall(writer.get_extra_info("peername")[1], self._latencies[port])
            self.under_way[port] -= 1
        return await super()._play(reply, writer)


class Drawn:
    """What came of requests, and when."""

    def __init__(self, stage: Stage, completions: list[Completion], seconds: float) -> None:
        self.posts: list[Asked] = stage.posts
        self.texts = [c.text for c in completions]
        self.seconds = seconds
        self.rate = len(completions) / seconds
        self.by_endpoint = Counter(post.endpoint for post in self.posts)


def draw(stage: Stage, count: int, *, concurrency: int = SLOTS) -> Drawn:
    random.seed(0)
    config = EngineConfig(
        base_urls=stage.urls, canary_s=None, concurrency=concurrency, timeout_s=1e6
    )
    engine = StagedEngine("unused", config, loop=stage.loop)
    drawn = [c for result in engine.generate(batches(count)) for c in result.completions]
    drawn.sort(key=lambda c: int(c.request_id.removeprefix("n")))
    seconds = stage.loop.time()
    engine.close()
    stage.close()
    return Drawn(stage, drawn, seconds)


def test_a_slow_endpoint_does_not_slow_a_fast_one() -> None:
    """Twenty to one: together they reach what they reach alone, but for the end of the last."""
    alone = [draw(Paced([latency]), count).rate for latency, count in ((FAST_S, 80), (SLOW_S, 20))]
    both = draw(Paced([FAST_S, SLOW_S]), 320)
    assert both.rate >= 0.97 * sum(alone)
    assert both.by_endpoint[1] / both.by_endpoint[0] == pytest.approx(FAST_S / SLOW_S, rel=0.25)


def test_every_endpoint_has_slots_of_its_own_and_no_request_is_sent_twice() -> None:
    stage = Paced([0.5, 0.5, 0.5])
    drawn = draw(stage, 80, concurrency=7)
    assert list(stage.most.values()) == [7, 7, 7]
    assert drawn.texts == [f"n{i}" for i in range(80)]
    assert len(drawn.posts) == 80


def test_the_last_requests_go_where_they_are_soonest_answered() -> None:
    """Once it is known how slow an endpoint is, it gets no request that others answer before."""
    stage = Paced([FAST_S, SLOW_S])
    config = EngineConfig(base_urls=stage.urls, canary_s=None, concurrency=SLOTS)
    engine = StagedEngine("unused", config, loop=stage.loop)
    list(engine.generate(batches(160)))
    before, began = len(stage.posts), stage.loop.time()
    [result] = engine.generate(batches(SLICE))
    seconds = stage.loop.time() - began
    engine.close()
    stage.close()
    assert len(result.completions) == SLICE
    assert {post.endpoint for post in stage.posts[before:]} == {0}
    assert seconds == pytest.approx(SLICE / SLOTS * FAST_S)


def test_equal_endpoints_share_alike() -> None:
    drawn = draw(Paced([0.5, 0.5, 0.5]), 240)
    assert max(drawn.by_endpoint.values()) <= 1.1 * min(drawn.by_endpoint.values())


@pytest.mark.parametrize("manner", ["reset", "silent"])
def test_a_dead_endpoints_requests_go_to_the_other(manner: str) -> None:
    dead = Reply(manner=manner)
    stage = Paced([FAST_S, FAST_S], lambda place, *_: dead if place == 1 else None)
    drawn = draw(stage, 160)
    assert drawn.texts == [f"n{i}" for i in range(160)]
    assert drawn.by_endpoint[0] == 160
    assert drawn.by_endpoint[1] <= 1 + math.log2(1 + drawn.seconds)


def down_between(stage: list[Paced], start: float, end: float) -> Script:
    """The second endpoint resets what it is asked meanwhile."""

    def script(place: int, name: str, attempt: int) -> Reply | None:
        now = stage[0].loop.time() if stage else 0.0
        return Reply(manner="reset") if place == 1 and start <= now < end else None

    return script


def test_an_endpoint_that_comes_back_is_used_again() -> None:
    stage: list[Paced] = []
    stage.append(Paced([0.5, 0.5], down_between(stage, 3.0, 10.0)))
    drawn = draw(stage[0], 320)
    assert drawn.texts == [f"n{i}" for i in range(320)]
    meanwhile = [post for post in drawn.posts if post.endpoint == 1 and 3 <= post.at < 10]
    after = Counter(post.endpoint for post in drawn.posts if post.at >= 18)
    # At first until that is noticed, then one at a time, ever more rarely.
    assert len(meanwhile) <= TRIP_AFTER + SLOTS + 2
    assert 0.8 * after[0] <= after[1] <= after[0]


class Crowded(Paced):
    """The second endpoint refuses what is more than `most_at_once`, without naming a time."""

    def __init__(self, latencies: Sequence[float], *, until: float = 1e9) -> None:
        super().__init__(latencies, self._full)
        self.most_at_once, self._until = 4, until

    def _full(self, place: int, name: str, attempt: int) -> Reply | None:
        port = int(self.urls[place].rpartition(":")[2].removesuffix("/v1"))
        full = self.under_way[port] >= self.most_at_once and self.loop.time() < self._until
        return failure(429) if place == 1 and full else None


def refused_later(drawn: Drawn, start: float, end: float) -> float:
    """Return the share of the second endpoint's requests that were refused in a time."""
    statuses = [p.reply.status for p in drawn.posts if p.endpoint == 1 and start <= p.at < end]
    return statuses.count(429) / len(statuses)


def test_an_endpoint_with_too_many_requests_gets_fewer_and_the_others_as_before() -> None:
    stage = Crowded([0.5, 0.5])
    drawn = draw(stage, 320, concurrency=8)
    assert drawn.texts == [f"n{i}" for i in range(320)]
    assert list(stage.most.values()) == [8, 4]
    assert refused_later(drawn, 5.0, 1e9) < 0.15
    # It is kept busy all the same: at most four at once.
    served = [p for p in drawn.posts if p.reply.status == 200]
    assert Counter(p.endpoint for p in served)[1] >= 0.5 * 4 / 0.5 * drawn.seconds


def test_its_slots_come_back() -> None:
    stage = Crowded([0.5, 0.5], until=6.0)
    drawn = draw(stage, 320)
    late = Counter(post.endpoint for post in drawn.posts if post.at >= 18)
    assert refused_later(drawn, 6.0, 1e9) == 0
    assert late[1] >= 0.9 * late[0]


def test_a_batch_waits_for_its_slowest_request_and_the_next_ones_do_not() -> None:
    """One request of each batch takes as long as fifteen others."""

    class Uneven(Paced):
        async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
            if b'"n' in reply.body and int(reply.body.split(b'"n')[1].split(b'"')[0]) % SLICE == 0:
                await self.loop.stall(writer.get_extra_info("peername")[1], 15 * FAST_S)
            return await super()._play(reply, writer)

    count = 320
    drawn = draw(Uneven([FAST_S]), count)
    slots_s = count * FAST_S + count / SLICE * 15 * FAST_S
    assert drawn.seconds <= 1.1 * slots_s / SLOTS + 15 * FAST_S


def test_no_more_is_asked_while_what_was_answered_is_not_kept() -> None:
    """A caller that is slow to keep its first batch: a kill loses two rounds and that batch."""
    stage = Paced([FAST_S])
    config = EngineConfig(base_urls=stage.urls, canary_s=None, concurrency=SLOTS)
    engine = StagedEngine("unused", config, loop=stage.loop)
    given = engine.generate(batches(160))
    next(given)
    at_hand = 2 * SLOTS + SLICE
    with engine.away():
        wait_until(lambda: len(stage.posts) == at_hand)
        time.sleep(0.3)
        assert len(stage.posts) == at_hand
    assert sum(len(result.completions) for result in given) == 160 - SLICE
    engine.close()
    stage.close()


FILES = ("traffic.py", "ranking.py", "openings.py", "gate.py")
"""The modules that find a place for each request."""


def lines_a_request(endpoints: int) -> float:
    """Return how many lines of them run for a request, while all endpoints are kept busy."""
    lines = 0

    def call(frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        path = Path(frame.f_code.co_filename)
        return line if path.name in FILES and path.parent.name == "endpoint" else None

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        del frame, argument
        lines += event == "line"
        return line

    async def attempt(passage: Passage) -> int:
        await asyncio.sleep(1.0 + passage.gate.place / 100)
        return passage.gate.place

    async def ask(count: int) -> list[int]:
        traffic = Traffic([f"http://host/{place}" for place in range(endpoints)], 4)
        errand = Errand(attempt, lambda _: -1)
        return await asyncio.gather(*(traffic.ask(errand, 1e9) for _ in range(count)))

    loop, count = VirtualLoop(), 16 * endpoints
    sys.settrace(call)
    try:
        places = loop.run_until_complete(ask(count))
    finally:
        sys.settrace(None)
        loop.close()
    assert set(places) == set(range(endpoints))
    return lines / count


def test_more_endpoints_make_no_request_dearer() -> None:
    assert lines_a_request(100) <= 1.5 * lines_a_request(10)


def test_nothing_is_prepared_for_slots_that_are_not_used_yet() -> None:
    """A hundred endpoints of 64 slots, of which none has answered: a request and a task each."""
    stage = Stage(100, lambda *_: Reply(manner="hang"))
    served = threading.Thread(target=stage.loop.run_forever)
    served.start()
    engine = OpenAIEngine(
        "unused", EngineConfig(base_urls=stage.urls, canary_s=None, concurrency=64)
    )
    taken: list[int] = []

    def source() -> Iterator[Batch]:
        for batch in batches(2 * 100 * 64):
            taken.append(len(batch.requests))
            yield batch

    def draw_all() -> None:
        with pytest.raises(EngineError, match="closed"):
            list(engine.generate(source()))

    caller = threading.Thread(target=draw_all)
    caller.start()
    wait_until(lambda: len(stage.asked) == 100)
    assert len(engine._traffic.tasks) == 100
    assert sum(taken) < 2 * 100 + SLICE
    engine.close()
    caller.join()
    stage.loop.call_soon_threadsafe(stage.loop.stop)
    served.join()
    stage.close()
