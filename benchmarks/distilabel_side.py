"""UltraFeedback's grades by lpfloop and by distilabel, on one endpoint and the same rows.

    python -m venv DIR && DIR/bin/pip install 'distilabel[openai]' requests
    python benchmarks/distilabel_side.py --distilabel-python DIR/bin/python

Both have a judge grade the same 4 answers to each of the same prompts, together, in the four
aspects of UltraFeedback: 4 calls a row. distilabel uses a `Pipeline` with an `UltraFeedback` task
for each aspect, in parallel, each with its process; lpfloop uses the verb `grade` of a run, in one
process.

The same on both sides: the endpoint, which answers after a fixed time and has no other limit, the
prompts, the answers, the settings of sampling, and the calls, which the server counts. Different
are:

- the questions: each side words the same aspects differently; the script prints their sizes;
- the form of the replies, at about the same length;
- the work on a row afterwards: the time of lpfloop includes its durable journal and Parquet files,
  the time of distilabel excludes its cache and data set. distilabel's time runs from the first
  question at the server to the last rating of its tasks, so without imports, starts and writing;
  lpfloop's from the call of the verb to the last committed row.

distilabel waits for a whole batch before it sends the next: each task has one batch in flight. The
script measures it with 50, its default, and with more. lpfloop has --concurrency in flight, 64 by
default.
"""

import argparse
import json
import subprocess
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from endpoints import answered, rows_of, timed, write_prompts
from slow_server import serving

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.critics.grading.grade_reply import FINE_GRAINED
from lpfloop.loop.run.handles import Rows
from lpfloop.loop.stages.grade import grade
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.records import Grade

CALLS = len(FINE_GRAINED)
ANSWERS = 4
DEFAULT_BATCH = 50
GOAL = 3.0

TASK = """
import json, os, sys, time
from distilabel.models import OpenAILLM
from distilabel.pipeline import Pipeline
from distilabel.steps import LoadDataFromDicts, StepInput
from distilabel.steps.tasks import UltraFeedback

FOLDER = os.getcwd()
ASPECTS = ("helpfulness", "honesty", "instruction-following", "truthfulness")

class Timed(UltraFeedback):
    # Notes when each batch was rated: the clock is the machine's, and each step is a process.
    def process(self, inputs: StepInput):
        for rated in super().process(inputs):
            with open(f"{FOLDER}/{self.aspect}.ended", "w") as file:
                file.write(str(time.monotonic()))
            yield rated

if __name__ == "__main__":
    url, rows, size = sys.argv[1], json.load(open(sys.argv[2])), int(sys.argv[3])
    with Pipeline(name="side") as pipeline:
        load = LoadDataFromDicts(data=rows, batch_size=size)
        load >> [
            Timed(
                name=aspect.replace("-", "_"),
                aspect=aspect,
                input_batch_size=size,
                llm=OpenAILLM(
                    model="m", base_url=url, api_key="none",
                    generation_kwargs={"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 1024},
                ),
            )
            for aspect in ASPECTS
        ]
    found = pipeline.run(use_cache=False)
    rated = [
        sum(rating is not None for rating in row["ratings"])
        for name in found for row in found[name]["train"]
    ]
    print("RATED", len(rated), sum(rated))
"""


@dataclass(frozen=True)
class GradingRate:
    """Number of graded rows, seconds, and the mean size of a question."""

    rows: int
    seconds: float
    question: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def told(self) -> str:
        calls = self.rate * CALLS
        return f"{self.rate:.1f} rows/s, {calls:.1f} calls/s, {self.question:.0f} bytes a question"


def own_answer(request: Request, sampling: Sampling) -> str:
    """Answer like a policy, each time differently."""
    del sampling
    return f"It is good for {request.seed} things, as everybody knows who has tried it. " * 8


def configured(source: Path, url: str, concurrency: int) -> RunConfig:
    """Return a run whose answers an endpoint grades."""
    return load_config(
        "tiny",
        "ultrafeedback-dpo",
        (
            "injection_guard=true",
            f"prompts.source={source}",
            "prompts.parts=null",
            "prompts.dev_share=0.0",
            "policy.engine.kind=scripted",
            "policy.engine.script=distilabel_side:own_answer",
            f"grading.model={url}",
            "grading.engine.kind=openai",
            "grading.engine.script=null",
            f"grading.engine.concurrency={concurrency}",
            "grading.templates=ultrafeedback",
            "grading.sampling.temperature=1.0",
            "grading.sampling.top_p=1.0",
            "reward.model=none",
            "assessment.reference=null",
            "assessment.oracle=null",
        ),
        {},
    )


def seen_at(url: str) -> dict[str, float]:
    """Return the server's number of answers since the last call, and their start."""
    with urllib.request.urlopen(f"{url}/seen") as reply:  # noqa: S310 -- on loopback
        return json.load(reply)


def question_bytes(seen: dict[str, float], rows: int) -> float:
    """Return the size of a question, after one of each row in each aspect."""
    assert seen["answers"] == rows * CALLS, f"{seen['answers']} answers to {rows} rows"
    return seen["bytes"] / seen["answers"]


def pairs_of(config: RunConfig) -> list[dict[str, object]]:
    """Return the prompts and answers to grade, in distilabel's format."""
    with (
        tempfile.TemporaryDirectory() as folder,
        answered(config, Path(folder), ANSWERS) as (it, sampled),
    ):
        texts: dict[str, list[str]] = {}
        for candidate in rows_of(it, sampled):
            texts.setdefault(candidate.prompt_id, []).append(candidate.text)
        return [
            {"instruction": it.run.prompts[prompt].instruction, "generations": generations}
            for prompt, generations in texts.items()
        ]


def by_distilabel(python: Path, url: str, pairs: Sequence[object], size: int) -> GradingRate:
    """Grade the rows with distilabel, in batches of this size."""
    with tempfile.TemporaryDirectory() as folder:
        script, rows = Path(folder) / "side.py", Path(folder) / "rows.json"
        script.write_text(TASK)
        rows.write_text(json.dumps(pairs))
        done = subprocess.run(
            [python, script, url, rows, str(size)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
        told = [line for line in done.stdout.splitlines() if line.startswith("RATED")]
        graded = len(pairs) * CALLS
        assert told == [f"RATED {graded} {graded * ANSWERS}"], done.stderr[-2000:]
        ended = max(float(path.read_text()) for path in Path(folder).glob("*.ended"))
    seen = seen_at(url)
    return GradingRate(len(pairs), ended - seen["first"], question_bytes(seen, len(pairs)))


def by_lpfloop(config: RunConfig, url: str) -> GradingRate:
    """Grade the rows with the verb `grade`, to the last committed one."""
    with (
        tempfile.TemporaryDirectory() as folder,
        answered(config, Path(folder), ANSWERS) as (it, sampled),
    ):
        count = len(rows_of(it, sampled)) // ANSWERS
        done: list[Rows[Grade]] = []

        def graded() -> None:
            done.append(grade(it, sampled))
            it.run.flow.settle()

        seconds = timed(count, graded).seconds
        statuses = Counter(row.status for row in rows_of(it, done[0]))
    assert statuses == {"scored": count * ANSWERS * CALLS}, statuses
    return GradingRate(count, seconds, question_bytes(seen_at(url), count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--distilabel-python", type=Path, help="of an environment with distilabel")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds to each answer")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[DEFAULT_BATCH, 200], help="of distilabel"
    )
    parser.add_argument(
        "--concurrency", type=int, nargs="+", default=[64, 200, 800], help="of lpfloop"
    )
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(options.latency, texts=ANSWERS) as url,
    ):
        source = write_prompts(Path(folder), options.rows)
        pairs = pairs_of(configured(source, url, 1))
        sides: dict[str, Callable[[], GradingRate]] = {}
        for size in options.batches if options.distilabel_python else ():
            sides[f"distilabel, {size} a batch"] = lambda s=size: by_distilabel(
                options.distilabel_python, url, pairs, s
            )
        for count in options.concurrency:
            config = configured(source, url, count)
            sides[f"lpfloop, {count} in flight"] = lambda c=config: by_lpfloop(c, url)
        for number in range(options.rounds):
            for side in [*sides] if number % 2 == 0 else [*sides][::-1]:
                seen_at(url)
                found = sides[side]()
                rates.setdefault(side, []).append(found.rate)
                print(f"{side}: {found.told()}", flush=True)
    report({side: median(found) for side, found in rates.items()})


def report(rates: dict[str, float]) -> None:
    """Print medians, and the ratio to distilabel's rate."""
    best = max(rate for side, rate in rates.items() if side.startswith("lpfloop"))
    print(f"\n{'side':<26}{'rows/s':>8}{'calls/s':>9}{'lpfloop is':>12}")
    for side, rate in rates.items():
        print(f"{side:<26}{rate:>8.1f}{rate * CALLS:>9.1f}{best / rate:>11.2f}x")
    default = rates.get(f"distilabel, {DEFAULT_BATCH} a batch")
    if default:
        reached = "met" if best / default >= GOAL else "MISSED"
        told = f"{best / default:.2f} times distilabel's default"
        print(f"{told}; goal {GOAL:g} or more: {reached}")


if __name__ == "__main__":
    main()
