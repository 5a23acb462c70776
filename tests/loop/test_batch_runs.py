"""Runs whose grader answers by batch files: the rows of direct requests, for half the price."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import graders
import pytest
from batch_server import BatchServer, batching
from crashing import Silent
from waiting import wait_until

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import Message

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=600)
SUPPORT = Path(__file__).parents[1] / "support"
SETTINGS = """
extends: tiny
policy: {{engine: {{kind: scripted, script: "scripts:policy"}}}}
reward: {{model: none}}
training: {{min_pairs: 1000000}}
assessment: {{reference: null, reward: false, kl: false, oracle: null, probes: null}}
critic: {{kind: verifier}}
prompts: {{per_iteration: 20, evaluated: 4, dev_share: 0, chunk: 10}}
completion: {{pool: policy}}
recipe: {{name: ultrafeedback-dpo, n: 4}}
prices: {{models: {{m: {{prompt: 1000, completion: 3000}}}}}}
drain_s: 1
grading:
  model: "{url}"
  engine: {{kind: openai, model_name: m, batch: {batch}, batch_least: 1, batch_poll_s: 0.1}}
"""
SMALL = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.kind=verifier",
    "reward.model=none",
    "completion.pool=policy",
    "recipe.n=4",
    "training.min_pairs=1000000",
    "prompts={per_iteration: 10, evaluated: 4, deciding: 4, chunk: 10}",
    "prompts.parts={preference: 10, unlabeled: 0}",
    "assessment={reference: null, reward: false, kl: false, oracle: null, probes: null}",
    "prices.models={m: {prompt: 1000, completion: 3000}}",
)


def graded(body: dict[str, Any]) -> str:
    shown = tuple(Message(role=m["role"], content=m["content"]) for m in body["messages"])
    return graders.by_figure(Request(request_id="", messages=shown, seed=1), GREEDY)


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batching(graded) as served:
        yield served


def started(folder: Path, server: BatchServer, *, batch: bool) -> "subprocess.Popen[str]":
    folder.mkdir(exist_ok=True)
    config = folder / "run.yaml"
    config.write_text(SETTINGS.format(url=server.url, batch=str(batch).lower()))
    paths = os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "lpfloop", "run", "--config", str(config), "--run", "a"],
        env={**os.environ, "PYTHONPATH": paths, "LPFLOOP_LAKE": str(folder / "lake")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]") -> str:
    _, told = process.communicate(timeout=600)
    return told


def sent(folder: Path) -> str:
    """Return what the run has written down of its files."""
    records = (folder / "lake" / "runs" / "a" / "logs" / "batches").glob("[!.]*.json")
    return "".join(record.read_text() for record in records)


def logged(folder: Path) -> str:
    return (folder / "lake" / "runs" / "a" / "logs" / "run.jsonl").read_text()


def made(lake: Path) -> tuple[str, float]:
    """Return the digest of a run, and what was paid in it."""
    run = run_folder(lake, "a")
    with closing(Reader(run)) as journal:
        return run_digest(run), journal.spent().money


def graded_run(lake: Path, server: BatchServer, **engine: str) -> tuple[str, float]:
    """Run until there is too little to train on; return digest and price."""
    asked = {"kind": "openai", "model_name": "m", "batch_least": "1", "batch_poll_s": "0.1"}
    named = ", ".join(f"{name}: {value}" for name, value in {**asked, **engine}.items())
    settings = (*SMALL, f"grading.model={server.url}", f"grading.engine={{{named}}}")
    config = load_config("tiny", "ultrafeedback-dpo", settings, {})
    with pytest.raises(NothingToTrainOn):
        run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    return made(lake)


def test_grades_by_files_are_those_of_direct_requests_for_half_the_price(tmp_path, server):
    rows, paid = graded_run(tmp_path / "direct", server)
    asked = len(server.direct)
    server.direct.clear()
    same, half = graded_run(tmp_path / "files", server, batch="true")
    assert rows == same
    assert len(server.direct) == 1
    assert paid / 2 < half < paid * (0.5 + 2 / asked)


@pytest.mark.slow  # three processes each, which load the recipe and the tiny world
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_run_that_ends_while_a_batch_runs_pays_half_and_once(tmp_path, server, name):
    direct, files = tmp_path / "direct", tmp_path / "files"
    assert "nothing was trained" in ended(started(direct, server, batch=False))
    asked = len(server.direct)
    server.direct.clear()
    server.released.clear()
    process = started(files, server, batch=True)
    wait_until(lambda: "batch0" in sent(files))
    process.send_signal(getattr(signal, name))
    told = ended(process)
    assert name == "SIGKILL" or "batch batch0 goes on at" in told + logged(files)
    server.released.set()
    assert "nothing was trained" in ended(started(files, server, batch=True))
    names = [line["custom_id"] for file in server.files.values() for line in file]
    assert len(names) == len(set(names)) > asked / 2
    assert len(names) + len(server.direct) <= asked + 2
    (rows, paid), (same, half) = made(direct / "lake"), made(files / "lake")
    assert rows == same
    few = len(server.direct) / asked
    assert paid / 2 <= half < paid * (0.5 + 2 * few)
