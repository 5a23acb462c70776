"""The client's own speed: how much of an endpoint's capacity it uses.

    python benchmarks/endpoints.py client    # one endpoint, and a bare openai client
    python benchmarks/endpoints.py pool      # two endpoints, one 20 times as fast as the other
    python benchmarks/endpoints.py fleet     # 64 and 1,000 requests in flight, and two processes

The server runs in a separate process, answers 250 ms after a request, and has no other limit: with
64 requests in flight no client gets more than 256 answers a second. `bare` is `openai.AsyncOpenAI`
with a semaphore of 64; `engine` is `OpenAIEngine.generate`, given batches as the loop gives them;
`stage` is the verb `critique` of a run, to the committed rows. All send the same conversations, in
one process, and take turns. Processor time is the client process's.

`fleet` adds two sides: `aiohttp` alone, the minimum for a client in this language, and two
processes with an engine each that share the requests.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from bare_clients import ask_all, ask_all_plainly
from sampling import MADE_HERE, Silent
from slow_server import serving

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import EngineConfig, RunConfig
from lpfloop.loop.daemon.iterations import iteration, order_prompts
from lpfloop.loop.daemon.loop import Job
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.run.engine_client import engine_sampling
from lpfloop.loop.run.handles import Rows, chunk_prompts
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.request_dispatcher import SLICE
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.endpoint.transport import allow_connections
from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.stores.records import Candidate, Critique, Message

Row = TypeVar("Row")
SIDES = ("bare", "engine", "stage")
MANY = 1000
SHARDS = 2
IN_FLIGHT = 64
LATENCY_S = 0.25
FAST_S, SLOW_S, SLOTS = 0.1, 2.0, 4
ASPECTS = "Factuality,Insightfulness,Readability"
GOALS = {"engine": 0.95, "pool": 0.9, "fleet": 0.95}


def answer(request: Request, sampling: Sampling) -> str:
    """Answer like a policy."""
    del sampling
    return f"It is good for {request.seed % 7} things, as everybody knows who has tried it. " * 8


@dataclass(frozen=True)
class Measurement:
    """Number of answers, seconds, and processor time."""

    answers: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.answers / self.seconds

    @property
    def cost(self) -> float:
        """Processor milliseconds for each answer."""
        return 1000 * self.cpu / self.answers

    def told(self) -> str:
        return f"{self.rate:.1f} answers/s, {self.cost:.2f} ms of processor each"


def timed(answers: int, work: Callable[[], None]) -> Measurement:
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return Measurement(answers, time.perf_counter() - started, time.process_time() - cpu)


def write_prompts(folder: Path, count: int) -> Path:
    path = folder / "prompts.jsonl"
    ask = "Say in two or three sentences what the number {} is good for, and why."
    rows = [{"prompt": ask.format(n), "task": "general", "split": "train"} for n in range(count)]
    rows.append({"prompt": "Say it.", "task": "general", "split": "held-out"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def configured(source: Path, *overrides: str) -> RunConfig:
    """Return a run with a scripted policy, whose critic uses the paper's prompts."""
    own = (
        f"prompts.source={source}",
        "policy.engine.kind=scripted",
        "policy.engine.script=endpoints:answer",
        "critic.templates=paper",
        "critic.aspects=paper",
        "critic.sampling.max_tokens=512",
        "reward.model=none",
    )
    return load_config("tiny", "rlrf", [*own, *overrides], {})


@contextmanager
def answered(
    config: RunConfig, folder: Path, n: int = 1
) -> Iterator[tuple[Iteration, Rows[Candidate]]]:
    """Open a run, and sample `n` answers to each prompt."""
    prompts = load_prompts(config.prompts, seed=config.seed)
    wanted = order_prompts(prompts, "train", config.seed)
    job = Job(config=config, lake=folder / "lake", name="benchmark")
    with open_job(job, prompts, Silent(), StopSignal()) as run:
        it = iteration(run, 1, MADE_HERE, ())
        sampled = sample(it, chunk_prompts(wanted, config.prompts.chunk), n=n)
        run.flow.settle()
        yield it, sampled


def critiqued(it: Iteration, sampled: Rows[Candidate]) -> Rows[Critique]:
    """Critique all answers, to the last committed row."""
    rows = critique(it, sampled)
    it.run.flow.settle()
    return rows


def rows_of(it: Iteration, rows: Rows[Row]) -> list[Row]:
    journal = it.run.store.journal
    keys = [key for stage in rows.stages for key in stage.keys(journal)]
    it.run.store.flush()
    return [row for key in keys for row in it.run.store.rows(rows.row_type, key)]


def what_is_asked(config: RunConfig) -> list[Request]:
    """Return the requests of the measured stage."""
    with (
        tempfile.TemporaryDirectory() as folder,
        answered(config, Path(folder)) as (it, sampled),
    ):
        run = it.run
        return [
            Request(
                request_id=c.candidate_id,
                messages=run.critic.ask(
                    run.prompts[c.prompt_id],
                    c.text,
                    run.guard(c.candidate_id, run.models.feedback),
                ).messages,
                seed=c.seed,
            )
            for c in rows_of(it, sampled)
        ]


def measure_stage(config: RunConfig) -> Measurement:
    with (
        tempfile.TemporaryDirectory() as folder,
        answered(config, Path(folder)) as (it, sampled),
    ):
        count = len(rows_of(it, sampled))
        done: list[Rows[Critique]] = []
        measured = timed(count, lambda: done.append(critiqued(it, sampled)))
        statuses = [row.status for row in rows_of(it, done[0])]
    assert statuses == ["scored"] * count, Counter(statuses)
    return measured


def measure_engine(
    urls: Sequence[str], requests: Sequence[Request], sampling: Sampling, in_flight: int
) -> Measurement:
    """Measure the engine, with batches as in the loop."""
    engine = OpenAIEngine("", EngineConfig(base_urls=tuple(urls), concurrency=in_flight))
    batches = [
        Batch(key=str(n), requests=tuple(requests[n : n + SLICE]), sampling=sampling)
        for n in range(0, len(requests), SLICE)
    ]

    def work() -> None:
        texts = [c.text for result in engine.generate(batches) for c in result.answers]
        assert len(texts) == len(requests)
        assert all(texts)

    try:
        return timed(len(requests), work)
    finally:
        engine.close()


def client(options: argparse.Namespace) -> None:
    """Print the answers a second of each side from one endpoint."""
    rounds: list[dict[str, Measurement]] = []
    with tempfile.TemporaryDirectory() as folder, serving(LATENCY_S, aspects=ASPECTS) as url:
        source = write_prompts(Path(folder), options.requests)
        config = configured(source, f"critic.model={url}")
        requests = what_is_asked(config)
        sampling = engine_sampling(config.critic.sampling)
        measure = {
            "bare": lambda: timed(
                len(requests), lambda: asyncio.run(ask_all(url, requests, sampling, IN_FLIGHT))
            ),
            "engine": lambda: measure_engine([url], requests, sampling, IN_FLIGHT),
            "stage": lambda: measure_stage(config),
        }
        for number in range(options.rounds):
            order = SIDES if number % 2 == 0 else SIDES[::-1]
            rounds.append({side: measure[side]() for side in order})
            told = "  ".join(f"{side} {rounds[-1][side].rate:.1f}" for side in SIDES)
            print(f"round {number + 1}: {told} answers/s", flush=True)
    report(rounds)


def report(rounds: Sequence[dict[str, Measurement]]) -> None:
    """Print medians, and the median of the ratios within a round."""
    most = IN_FLIGHT / LATENCY_S
    print(f"\n{'side':<8}{'answers/s':>10}{'of most':>9}{'of bare':>9}{'ms of processor':>17}")
    for side in SIDES:
        rate = median(r[side].rate for r in rounds)
        ratio = median(r[side].rate / r["bare"].rate for r in rounds)
        cpu = median(r[side].cost for r in rounds)
        print(f"{side:<8}{rate:>10.1f}{rate / most:>9.1%}{ratio:>9.1%}{cpu:>17.2f}")
    verdict("engine", median(r["engine"].rate / r["bare"].rate for r in rounds), "of bare")


def pool(options: argparse.Namespace) -> None:
    """Print the answers a second of a fast endpoint, a slow one, and both together."""
    message = asked_once("What is it good for?")
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=100)
    # So few a second that no processor is the bottleneck.
    count, shares = options.requests // 8, list[float]()
    with serving(FAST_S) as fast, serving(SLOW_S) as slow:
        for _ in range(options.rounds):
            alone = [
                measure_engine([url], message * asks, sampling, SLOTS).rate
                for url, asks in ((fast, count // 4), (slow, 2 * SLOTS))
            ]
            both = measure_engine([fast, slow], message * count, sampling, SLOTS).rate
            shares.append(both / sum(alone))
            print(f"fast {alone[0]:.1f}  slow {alone[1]:.1f}  both {both:.1f} answers/s")
    verdict("pool", median(shares), "of the sum of both alone")


def fleet(options: argparse.Namespace) -> None:
    """Print the speed of a bare client, the engine, and engines in two processes, by load.

    The server's latency grows with the requests in flight, so that its capacity stays the same.
    """
    allow_connections(MANY)
    text = "Say in two or three sentences what the number {} is good for, and why. " * 12
    requests = [
        replace(asked_once(text.replace("{}", str(n)))[0], seed=n) for n in range(options.requests)
    ]
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=512, logprob=False)
    with ProcessPoolExecutor(SHARDS, mp_context=get_context("spawn")) as processes:
        for in_flight in options.in_flight:
            latency = LATENCY_S * in_flight / IN_FLIGHT
            with serving(latency) as url:
                sides = _fleet_sides(url, requests, sampling, in_flight, processes)
                rounds: list[dict[str, Measurement]] = []
                for number in range(options.rounds):
                    order = [*sides] if number % 2 == 0 else [*sides][::-1]
                    rounds.append({})
                    for side in order:
                        found = rounds[-1][side] = sides[side]()
                        told = (
                            f"{found.rate:.1f} answers/s, {1000 * found.cpu / found.answers:.2f} ms"
                        )
                        print(f"round {number + 1}: {side} {told}", flush=True)
            print(f"\n{in_flight} in flight, each answered after {latency:.1f} s")
            for side in sides:
                rate = median(r[side].rate for r in rounds)
                cpu = median(r[side].cost for r in rounds)
                share = median(r["engine"].rate / r[side].rate for r in rounds)
                told = f"{cpu:>8.2f} ms of processor each; the engine has {share:.2f} times that"
                print(f"{side:<14}{rate:>8.1f} answers/s{told}")
            verdict("fleet", median(r["engine"].rate / r["bare"].rate for r in rounds), "of bare")


def _fleet_sides(
    url: str,
    requests: Sequence[Request],
    sampling: Sampling,
    in_flight: int,
    processes: ProcessPoolExecutor,
) -> dict[str, Callable[[], Measurement]]:
    def asked(ask: Callable[..., Coroutine[Any, Any, None]]) -> Measurement:
        return timed(len(requests), lambda: asyncio.run(ask(url, requests, sampling, in_flight)))

    def sharded() -> Measurement:
        parts = [requests[n::SHARDS] for n in range(SHARDS)]
        share = partial(measure_engine, [url], sampling=sampling, in_flight=in_flight // SHARDS)
        costs = list[float]()
        both = timed(
            len(requests),
            lambda: costs.extend(measured.cpu for measured in processes.map(share, parts)),
        )
        return replace(both, cpu=sum(costs))

    list(processes.map(abs, range(SHARDS)))  # started, with imports done
    return {
        "bare": lambda: asked(ask_all),
        "aiohttp": lambda: asked(ask_all_plainly),
        "engine": lambda: measure_engine([url], requests, sampling, in_flight),
        "two processes": sharded,
    }


def asked_once(text: str) -> list[Request]:
    return [Request(request_id="r", messages=(Message(role="user", content=text),), seed=1)]


def verdict(name: str, share: float, of: str) -> None:
    reached = "met" if share >= GOALS[name] else "MISSED"
    print(f"{name}: {share:.1%} {of}; goal {GOALS[name]:.0%} or more: {reached}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("client", "pool", "fleet"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2560)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[IN_FLIGHT, MANY], metavar="N")
    options = parser.parse_args()
    {"client": client, "pool": pool, "fleet": fleet}[options.what](options)


if __name__ == "__main__":
    main()
