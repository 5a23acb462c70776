"""Requests to real servers: what one costs the client, and what two servers reach together."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import openai
from batches import batches

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine

SERVER = Path(__file__).parents[2] / "benchmarks" / "slow_server.py"
REQUESTS = 160
IN_FLIGHT = 16
SLOTS = 4
ROUNDS = 3
MEET_S = 300
"""However busy the machine is, those that are compared begin by then."""


@contextmanager
def serving(latency: float) -> Iterator[str]:
    command = [sys.executable, str(SERVER), f"--latency={latency}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.kill()


def rate(
    urls: list[str], count: int, concurrency: int, ready: Callable[[], object] = lambda: None
) -> float:
    """Return how many answers a second the engine gets, from when it is `ready`."""
    engine = OpenAIEngine("", EngineConfig(base_urls=tuple(urls), concurrency=concurrency))
    # First several endpoints show once that they serve one model.
    list(engine.generate(batches(concurrency)))
    ready()
    started = time.perf_counter()
    drawn = [c for result in engine.generate(batches(count)) for c in result.completions]
    seconds = time.perf_counter() - started
    engine.close()
    assert len(drawn) == count
    assert all(c.text for c in drawn)
    return count / seconds


async def ask_all(url: str) -> None:
    """Ask by a bare client."""
    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def ask(number: int) -> None:
        async with slots:
            message = {"role": "user", "content": f"n{number}"}
            await client.chat.completions.create(
                model="m",
                messages=[message],  # pyright: ignore[reportArgumentType]
                max_completion_tokens=7,
                seed=number,
            )

    await asyncio.gather(*map(ask, range(REQUESTS)))
    await client.close()


def test_a_request_costs_half_the_processor_time_of_a_bare_client_at_most() -> None:
    ratios: list[float] = []
    with serving(0.0) as url:
        for _ in range(ROUNDS):
            began = time.process_time()
            asyncio.run(ask_all(url))
            between = time.process_time()
            rate([url], REQUESTS, IN_FLIGHT)
            ratios.append((time.process_time() - between) / (between - began))
    assert sorted(ratios)[ROUNDS // 2] <= 0.5, ratios


def test_two_servers_reach_nine_tenths_of_what_they_reach_alone() -> None:
    """Twenty to one, and alone at the same time: what else the machine does slows them all."""
    with (
        serving(0.1) as fast,
        serving(2.0) as slow,
        serving(0.1) as fast_alone,
        serving(2.0) as slow_alone,
        ThreadPoolExecutor(3) as callers,
    ):
        met = Barrier(3, timeout=MEET_S)
        asked = [([fast, slow], 320), ([fast_alone], 300), ([slow_alone], 16)]
        shares: list[float] = []
        while len(shares) < ROUNDS and max(shares, default=0.0) < 0.9:
            together, *alone = callers.map(lambda job: rate(*job, SLOTS, met.wait), asked)
            shares.append(together / sum(alone))
    assert max(shares) >= 0.9, shares
