"""A run with a hosted critic, with overlapping stages and with sequential stages.

The policy is a script with a delay for each request. The critic is a server on loopback that
answers as many requests a second. Both sides make the same rows; they take turns, and the script
compares the medians of the seconds from the first stage to the last. It measures sampling and
critiquing alone first: the slower one limits the gain from overlap.

    python benchmarks/overlap.py --rounds 5 --prompts 64 --n 4
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.iterations import iteration, order_prompts
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.run.reporter import UnitStats
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import Checkpoint

REQUEST_S = 0.01
GOAL = 1.15
RATED = json.dumps(dict.fromkeys(("Comprehension", "Completeness", "Readability"), 1))
MADE_HERE = Checkpoint(
    checkpoint_id="benchmark",
    parent_id=None,
    reference_id=None,
    iteration=0,
    recipe="initial",
    path="tiny",
    steps=0,
    metrics="{}",
)


def policy(request: Request, sampling: Sampling) -> str:
    """Answer after a delay."""
    del sampling
    time.sleep(REQUEST_S)
    return f"The answer is {request.seed % 1000}."


class Critic(BaseHTTPRequestHandler):
    """Answers one request after another, each after a delay."""

    protocol_version = "HTTP/1.1"
    turn = threading.Lock()

    def do_GET(self) -> None:
        """Name the model."""
        self._say({"object": "list", "data": [{"id": "critic", "object": "model", "created": 0}]})

    def do_POST(self) -> None:
        """Rate the requested aspects."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.turn:
            time.sleep(REQUEST_S)
        text = f"Fine.\n{RATED}" if asked["messages"] else ""
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text},
        }
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        whole = {"id": "c", "object": "chat.completion", "created": 0, "model": "critic"}
        self._say({**whole, "choices": [choice], "usage": usage})

    def _say(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- named by the base
        """Log nothing."""


class Silent:
    """A reporter without output."""

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Report nothing."""

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        """Report nothing."""

    def end(self, iteration: int, stage: str) -> None:
        """Report nothing."""

    def note(self, text: str, event: str = "note", **_: object) -> None:
        """Report nothing."""


@contextmanager
def serving() -> Generator[str]:
    """Yield the address of a critic."""
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), Critic)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()


def configured(url: str, prompts: Path, options: argparse.Namespace, *, overlap: bool) -> RunConfig:
    """Return the configuration of a side."""
    settings = (
        f"prompts.source={prompts}",
        "prompts.chunk=2",
        f"prompts.per_iteration={options.prompts}",
        "policy.engine.kind=scripted",
        "policy.engine.script=overlap:policy",
        f"critic.model={url}",
        "reward.model=none",
        "injection_guard=false",
        f"overlap={str(overlap).lower()}",
    )
    return load_config("tiny", "rlrf", settings, {})


def measured(config: RunConfig, n: int) -> tuple[float, float, str]:
    """Return the seconds of both stages together, those of sampling, and the digest of the rows."""
    with tempfile.TemporaryDirectory() as lake:
        job = Job(config=config, lake=Path(lake), name="overlap")
        prompts = load_prompts(config.prompts, seed=config.seed)
        with open_job(job, prompts, Silent(), StopSignal()) as run:
            train = order_prompts(prompts, "train", config.seed)[: config.prompts.per_iteration]
            it = iteration(run, 1, MADE_HERE, train)
            began = time.monotonic()
            critique(it, sample(it, it.prompts(), n=n))
            run.flow.settle()
            seconds = time.monotonic() - began
            (alone,) = (s.seconds for s in run.store.journal.stages() if s.stage == "sample")
        return seconds, alone, run_digest(run_folder(Path(lake), "overlap"))


def main() -> int:
    """Measure both sides, and compare with the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--n", type=int, default=4)
    options = parser.parse_args()
    sides: dict[bool, list[float]] = {True: [], False: []}
    alone = list[float]()
    digests = set[str]()
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        source = Path(folder) / "prompts.jsonl"
        rows = ({"prompt": f"What is {n} + {n}?"} for n in range(2 * options.prompts))
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        for _ in range(options.rounds):
            for overlap in (True, False):
                config = configured(url, source, options, overlap=overlap)
                seconds, sampling, digest = measured(config, options.n)
                sides[overlap].append(seconds)
                digests.add(digest)
                if not overlap:
                    alone.append(max(sampling, seconds - sampling))
    beside, after, slower = median(sides[True]), median(sides[False]), median(alone)
    print(f"one after another {after:.2f} s, side by side {beside:.2f} s")
    print(f"side by side / the slower stage alone: {beside / slower:.2f} (goal: {GOAL})")
    print(f"the rows are {'the same' if len(digests) == 1 else 'NOT the same'}")
    return 0 if beside <= GOAL * slower and len(digests) == 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
