"""Runs whose grader uses batch files: the rows of direct requests, at half the price."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import judges
import pytest
from http_server import BatchServer, batching
from world import Silent, stand_ins

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import Message

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=600)
SMALL = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.kind=verifier",
    "reward.model=none",
    "completion.pool=policy",
    "recipe.n=4",
    "training.min_pairs=1000000",
    "prompts={per_iteration: 10, max_test: 4, max_dev: 4, chunk: 10}",
    "prompts.parts={preference: 10, unlabeled: 0}",
    "assessment={reference: null, reward: false, kl: false, oracle: null, probes: null}",
    "prices.models={m: {prompt: 1000, completion: 3000}}",
)


def graded(body: dict[str, Any]) -> str:
    shown = tuple(Message(role=m["role"], content=m["content"]) for m in body["messages"])
    return judges.by_figure(Request(request_id="", messages=shown, seed=1), GREEDY)


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batching(graded) as served:
        yield served


def made(lake: Path) -> tuple[str, float]:
    """Return the digest of a run, and its paid tokens."""
    run = run_folder(lake, "a")
    with closing(Reader(run)) as journal:
        return run_digest(run), journal.total_cost().money


def graded_run(lake: Path, server: BatchServer, **engine: str) -> tuple[str, float]:
    """Run until there is too little to train on; return digest and price."""
    asked = {"kind": "openai", "model_name": "m", "batch_least": "1", "batch_poll_s": "0.1"}
    named = ", ".join(f"{name}: {value}" for name, value in {**asked, **engine}.items())
    settings = (*SMALL, f"grading.model={server.url}", f"grading.engine={{{named}}}")
    config = load_config("tiny", "ultrafeedback-dpo", settings, {})
    lake.mkdir()
    with stand_ins(lake), pytest.raises(NothingToTrainOn):
        run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    return made(lake)


def test_batch_files_give_the_same_grades(tmp_path, server):
    rows, paid = graded_run(tmp_path / "direct", server)
    asked = len(server.direct)
    server.direct.clear()
    same, half = graded_run(tmp_path / "files", server, batch="true")
    assert rows == same
    assert len(server.direct) == 1
    assert paid / 2 < half < paid * (0.5 + 2 / asked)
