"""Sampling in the loop against a bare `vllm.LLM.generate`, with equal prompts, seeds and settings.

Each measurement is a fresh process, the sides take turns, and loading is not counted. `lpfloop` is
the loop's own verb `sample`: chat template, worker process, chunks returned one by one, rows sealed
as Parquet and committed to the journal. `bare` gets all prompts at once, as texts with the chat
template already applied (with --token-ids, also tokenized); `bare+logprobs` also asks for the
log-probability of each token, as the loop does, and is the side that the loop is compared with. In
float32 on one thread (`tiny`) all sides must draw the same texts. Elsewhere the last bits depend on
the requests in flight: then the sides must draw about as many tokens.

All sides run in a worker's environment, whose threads sleep at barriers instead of spinning. With
--own-threads the bare sides keep this shell's environment. On a busy machine, spinning threads then
slow them severalfold, which would flatter lpfloop.

    python benchmarks/sampling.py --rounds 5 --prompts 600 --n 6
    python benchmarks/sampling.py --model smol --prompts 40 --chunk 8
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.iterations import iteration, order_prompts
from lpfloop.loop.daemon.loop import Job
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.run.handles import Rows, chunk_prompts
from lpfloop.loop.run.reporter import UnitStats
from lpfloop.loop.run.run import Run
from lpfloop.loop.run.served import locate_model
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.engines.vllm_engine import engine_arguments
from lpfloop.policies.workers.environment import FIXED, worker_environment
from lpfloop.stores.records import Candidate, Checkpoint

SIDES = ("bare", "bare+logprobs", "lpfloop")
PEER = "bare+logprobs"
WARM_UP = 8
GOAL = 0.97
ALIKE = 0.02
"""The most by which two sides' numbers of tokens may differ, as a share."""
MADE_HERE = Checkpoint(
    checkpoint_id="benchmark",
    parent_id=None,
    reference_id=None,
    iteration=0,
    recipe="initial",
    path="",
    steps=0,
    metrics="{}",
)


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


@dataclass(frozen=True)
class Measurement:
    """Samples of one process, and its time."""

    tokens: int
    seconds: float
    texts: list[str]

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def configured(options: argparse.Namespace) -> RunConfig:
    """Return the world's configuration, at the requested sizes."""
    return load_config(options.model, "rlrf", [f"prompts.chunk={options.chunk}"], {})


def sample_in_loop(options: argparse.Namespace, lake: Path) -> tuple[list[Candidate], float]:
    """Sample with the loop's verb; return the committed rows and the seconds it took."""
    config = configured(options)
    prompts = load_prompts(config.prompts, seed=config.seed)
    wanted = order_prompts(prompts, "train", config.seed)[: options.prompts]
    job = Job(config=config, lake=lake, name="benchmark")
    with open_job(job, prompts, Silent(), StopSignal()) as run:
        policy = replace(MADE_HERE, path=options.model)
        warm = iteration(run, 1, policy, ())
        sample(warm, chunk_prompts(wanted[:WARM_UP], WARM_UP), n=options.n)
        run.flow.settle()
        timed = iteration(run, 2, policy, ())
        started = time.perf_counter()
        rows = sample(timed, chunk_prompts(wanted, config.prompts.chunk), n=options.n)
        run.flow.settle()
        seconds = time.perf_counter() - started
        return committed(run, rows), seconds


def committed(run: Run, rows: Rows[Candidate]) -> list[Candidate]:
    keys = [key for stage in rows.stages for key in stage.keys(run.store.journal)]
    return [row for key in keys for row in run.store.rows(Candidate, key)]


def measure_lpfloop(options: argparse.Namespace, requests: Path) -> Measurement:
    """Measure the loop; leave its prompts and seeds for the bare sides."""
    with tempfile.TemporaryDirectory() as folder:
        rows, seconds = sample_in_loop(options, Path(folder))
    if not requests.exists():
        config = configured(options)
        turns = {
            p.prompt_id: [asdict(turn) for turn in p.messages]
            for p in load_prompts(config.prompts, seed=config.seed)
        }
        requests.write_text(json.dumps([[turns[row.prompt_id], row.seed] for row in rows]))
    return measured([(row.text, row.completion_tokens) for row in rows], seconds)


def measure_bare(options: argparse.Namespace, requests: Path, *, logprobs: bool) -> Measurement:
    """Draw the same samples with one call of `LLM.generate`."""
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    config = configured(options).policy
    arguments = engine_arguments(
        locate_model(options.model), config.engine, on_cpu=current_platform.is_cpu()
    )
    llm = LLM(**arguments)
    tokenizer = llm.get_tokenizer()
    wanted = json.loads(requests.read_text())
    prompts = [
        tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        for turns, _ in wanted
    ]
    if options.token_ids:
        encoded = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]
        prompts = [{"prompt_token_ids": ids} for ids in encoded]
    parameters = [
        SamplingParams(
            temperature=config.sampling.temperature,
            top_p=config.sampling.top_p,
            max_tokens=config.sampling.max_tokens,
            seed=seed,
            logprobs=0 if logprobs else None,
        )
        for _, seed in wanted
    ]
    warm = WARM_UP * options.n
    llm.generate(prompts[:warm], parameters[:warm], use_tqdm=False)
    started = time.perf_counter()
    outputs = [o.outputs[0] for o in llm.generate(prompts, parameters, use_tqdm=False)]
    seconds = time.perf_counter() - started
    return measured([(o.text, len(o.token_ids)) for o in outputs], seconds)


def measured(drawn: list[tuple[str, int]], seconds: float) -> Measurement:
    texts = [hashlib.sha256(text.encode()).hexdigest()[:16] for text, _ in drawn]
    return Measurement(sum(tokens for _, tokens in drawn), seconds, texts)


def measure(side: str, options: argparse.Namespace) -> Measurement:
    """Measure one side in this process."""
    requests = Path(options.requests)
    if side == "lpfloop":
        return measure_lpfloop(options, requests)
    return measure_bare(options, requests, logprobs=side == "bare+logprobs")


def measure_apart(side: str, requests: Path, options: argparse.Namespace) -> Measurement:
    """Measure one side in a fresh process, with the arguments of this one."""
    environment = worker_environment(configured(options).policy.engine)
    if options.own_threads and side != "lpfloop":
        environment = {**os.environ, **{name: environment[name] for name in FIXED}}
        environment["VLLM_CPU_KVCACHE_SPACE"] = "1"
    apart = ["--side", side, "--requests", str(requests)]
    command = [sys.executable, __file__, *sys.argv[1:], *apart]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{side} failed:\n{done.stderr[-3000:]}")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def report(rounds: list[dict[str, Measurement]]) -> None:
    """Print medians, and the median of the ratios within a round."""
    print(f"\n{'side':<15}{'tokens/s':>10}{'of peer':>10}{'lowest':>9}{'highest':>9}")
    for side in SIDES:
        ratios = [r[side].rate / r[PEER].rate for r in rounds]
        rate = median(r[side].rate for r in rounds)
        print(
            f"{side:<15}{rate:>10,.0f}{median(ratios):>10.1%}{min(ratios):>9.1%}{max(ratios):>9.1%}"
        )
    ratio = median(r["lpfloop"].rate / r[PEER].rate for r in rounds)
    print(f"goal: lpfloop at {GOAL:.0%} of {PEER}: {'met' if ratio >= GOAL else 'MISSED'}")


def require_alike(sides: dict[str, Measurement], *, exact: bool) -> str:
    """End if the sides of a round did other work; return how much of it was the same."""
    peer, own = sides[PEER], sides["lpfloop"]
    same = sum(a == b for a, b in zip(peer.texts, own.texts, strict=True))
    if exact and any(side.texts != peer.texts for side in sides.values()):
        sys.exit(f"the sides drew different texts: {same} of {len(peer.texts)} are the same")
    if any(abs(side.tokens / peer.tokens - 1) > ALIKE for side in sides.values()):
        sys.exit(
            f"the sides drew different numbers of tokens: {[s.tokens for s in sides.values()]}"
        )
    return f"{same} of {len(peer.texts)} texts the same"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("tiny", "smol"), default="tiny", help="the world")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=600)
    parser.add_argument("--n", type=int, default=6, help="candidates per prompt")
    parser.add_argument("--chunk", type=int, default=64, help="prompts per unit")
    parser.add_argument("--token-ids", action="store_true", help="give bare tokens, not texts")
    parser.add_argument("--own-threads", action="store_true", help="keep this environment for bare")
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process")
    parser.add_argument("--requests", help="file of prompts and seeds that the sides share")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.side:
        print(json.dumps(asdict(measure(options.side, options))))
        return
    rounds: list[dict[str, Measurement]] = []
    with tempfile.TemporaryDirectory() as folder:
        requests = Path(folder) / "requests.json"
        measure_apart("lpfloop", requests, options)
        for number in range(options.rounds):
            order = SIDES if number % 2 == 0 else SIDES[::-1]
            rounds.append({side: measure_apart(side, requests, options) for side in order})
            alike = require_alike(rounds[-1], exact=options.model == "tiny")
            rates = "  ".join(f"{side} {rounds[-1][side].rate:,.0f}" for side in SIDES)
            print(f"round {number + 1}: {rates} tokens/s, {alike}", flush=True)
    report(rounds)


if __name__ == "__main__":
    main()
