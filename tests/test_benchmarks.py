"""Every benchmark runs at its smallest size, and the options that pages show exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import call

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
COMMAND = re.compile(r"python (benchmarks/(\w+)\.py[^`\n|]*)")
SMALLEST = {
    "durability units": ("units --rounds 1 --units 5", "overhead"),
    "endpoints client": ("client --rounds 1 --requests 64", "answers/s"),
    "equal_lengths": ("--models 2", "held slope"),
    "members pool": ("pool --units 400 --members 40", "every unit came once"),
    "members same": ("same --units 60 --members 40", "the rows are the same"),
    "overlap": ("--rounds 1 --prompts 2 --n 1", "the rows are the same"),
    "shared_annotators": ("--prompts 5 --draws 5", "narrower"),
    "verdicts": ("--runs 2", "undecided"),
}
"""What takes seconds: the arguments, and words of what is printed."""
HEAVIER = {
    "alarms": ("--seeds 1", "honest"),
    "distilabel_side": (
        "--rows 8 --rounds 1 --latency 0.05 --concurrency 64",
        "lpfloop is",
    ),
    "durability resume": ("resume --rounds 1 --prompts 20", "first new unit after"),
    "durability run": ("run {tiny}", "both together"),
    "endpoints fleet": ("fleet --rounds 1 --requests 64", "two processes"),
    "endpoints pool": ("pool --rounds 1 --requests 64", "answers/s"),
    "fitting": ("", "| DPO | LoRA |"),
    "lake": ("--folder {folder} --prompts 20 40", "cost per row"),
    "lake_in_bucket": ("--folder {folder} --prompts 20 --times 1", "lake verify --deep"),
    "live_engine": ("--engine transformers --rounds 1", "rounds in turns"),
    "members journal": ("journal --units 400 --stage 200", "bytes/unit"),
    "members run": ("run --at 0 200 --units 40 --members 40 --stage 100", "opened again in"),
    "memory": ("--only sft", "| sft |"),
    "planning": ("--prompts {prompts} --policy tiny --lake {folder} {tiny}", "calls"),
    "ppo": ("--steps 2 --rollouts 4 --batch 4 --micro 4 --engine transformers --tokens 8", "PPO"),
    "principles": ("--prompts 2", "tiny-plain"),
    "published_data": ("svamp --data {data}", "svamp"),
    "replicas": ("--rounds 1 --slices 2", "slices/s"),
    "rollback": ("--runs {run}", "published above M_0"),
    "sampling": ("--rounds 1 --prompts 2 --n 1 --chunk 2", "tokens/s"),
    "scoring": ("--rounds 1 --rows 4 --hidden 128 --layers 1 --without-vllm", "transformers"),
    "snapshots": ("--mib 1", "commits/s alone"),
    "training": ("--model tiny --data {pairs} --pairs 16 --batch 8 --rounds 1", "pairs/s"),
    "displacement": (
        "{run} --results {folder}/rows.jsonl --arms sft_weight=1 --iterations 1",
        "sft_weight=1",
    ),
    "viewing": ("--folder {folder} --prompts 20 --rounds 1", "candidates by rating"),
}
"""What loads models or takes minutes even so: run by `-m slow`."""
BEGINS = 'if __name__ == "__main__":'
TINY = (
    "prompts.per_iteration=12",
    "prompts.evaluated=6",
    "prompts.deciding=6",
    "training.min_pairs=1",
)
EXPORT = ("export", "tiny-rlrf", "pairs", "--as", "trl-dpo", "--output")
FILES = {path.stem: path.read_text() for path in BENCHMARKS.glob("*.py")}
SERVER = "slow_server"
"""What endpoints.py and overlap.py start, and so try."""
WITH_TORCH = {"live_engine", "ppo"}


def said(*arguments, cwd):
    """Run a benchmark; return its output, once it did not fail."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    # A goal that is missed at this size is no fault; an error writes a traceback, or its usage.
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert "error:" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def arguments(text, *, cwd, **places):
    settings = shlex.join([word for pair in TINY for word in ("--set", pair)])
    return shlex.split(text.format(folder=cwd, tiny=settings, **places))


@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs_at_its_smallest_size(name, tmp_path):
    text, words = SMALLEST[name]
    file = BENCHMARKS / f"{name.split()[0]}.py"
    assert words in said(str(file), *arguments(text, cwd=tmp_path), cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("name", HEAVIER)
def test_a_heavier_benchmark_runs_at_its_smallest_size(name, request, tmp_path):
    text, words = HEAVIER[name]
    places = {}
    if "{run}" in text or "{pairs}" in text:
        lake = request.getfixturevalue("real_lake")
        places["run"] = lake / "runs" / "tiny-rlrf"
    if "{pairs}" in text:
        code, _, stderr = call(lake, *EXPORT, str(tmp_path / "pairs"))
        assert code == 0, stderr
        places["pairs"] = tmp_path / "pairs" / "train.parquet"
    if "{data}" in text:
        places["data"] = request.getfixturevalue("shared_data")
    if "{prompts}" in text:
        places["prompts"] = tmp_path / "prompts.jsonl"
        rows = (f'{{"question": "What is {n} + 1?", "answer": "#### {n + 1}"}}' for n in range(40))
        places["prompts"].write_text("\n".join(rows))
    file = BENCHMARKS / f"{name.split()[0]}.py"
    given = arguments(text, cwd=tmp_path / "made", **places)
    assert words in said(str(file), *given, cwd=tmp_path)


def test_every_benchmark_is_tried():
    tried = {name.split()[0] for name in (*SMALLEST, *HEAVIER)}
    assert tried | {SERVER} == {name for name, source in FILES.items() if BEGINS in source}


def test_every_benchmark_can_be_imported(tmp_path):
    names = ", ".join(sorted({*FILES} - WITH_TORCH))
    command = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import {names}"
    assert said("-P", "-c", command, cwd=tmp_path) == ""


def shown():
    """Return the commands of the pages that run a benchmark, with the benchmark's name."""
    found = [match.groups() for page in PAGES for match in COMMAND.finditer(page.read_text())]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("command", "name"), shown())
def test_a_benchmark_that_a_page_names_takes_what_is_shown(command, name):
    source = FILES[name]
    options = [word for word in shlex.split(command) if word.startswith("--")]
    assert [option for option in options if f'"{option}"' not in source] == []
    assert BEGINS in source
