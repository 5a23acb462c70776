"""A run keeps the paid answers of a judge after every kind of end: over HTTP, with bad replies."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from http_server import CONCURRENCY, IN_FLIGHT, KINDS, SIGNALS, PaidRun, paid_judge, spent, tell

from lpfloop.loop.cli.common import Exit
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import run_folder

MORE = 1.02
"""Maximum of served replies, as a multiple of the needed ones, without those in flight."""


@pytest.fixture(scope="module")
def pending(tmp_path_factory: pytest.TempPathFactory):
    """The number of replies that a kind of run needs without interruption."""
    return cache(lambda kind: _straight(tmp_path_factory.mktemp(kind), kind))


def _straight(folder: Path, kind: str) -> int:
    with paid_judge(KINDS[kind][0]) as judge:
        run = PaidRun(folder, kind, judge)
        assert run.go() == Exit.NOTHING_TO_TRAIN_ON, run.stderr
        assert spent(run.run).judge_calls == judge.served > 2 * IN_FLIGHT
        return judge.served


@pytest.mark.parametrize(("kind", "name"), [("critiques", "SIGKILL"), ("grades", "SIGTERM")])
def test_paid_replies_are_kept(tmp_path, pending, kind, name):
    """End a run by a signal after half of its replies, and count the next run's requests."""
    half = pending(kind) // 2
    with paid_judge(KINDS[kind][0]) as judge:
        run = PaidRun(tmp_path, kind, judge)
        run.go(signal_number=SIGNALS[name], at=half)
        served = judge.served
        assert half - 1 <= served <= half + 1 + 2 * IN_FLIGHT
        lost = 0 if name == "SIGTERM" else IN_FLIGHT
        assert abs(spent(run.run).judge_calls - served) <= lost
        assert run.go() == Exit.NOTHING_TO_TRAIN_ON, run.stderr
        assert judge.served <= MORE * pending(kind) + lost


def test_budget_charges_in_flight_requests(tmp_path, pending):
    with paid_judge(KINDS["critiques"][0]) as judge:
        limit = int(MORE * pending("critiques")) + 3 * IN_FLIGHT
        run = PaidRun(tmp_path, "critiques", judge, limits=f"budget: {{judge_calls: {limit}}}")
        run.go(signal_number=SIGNALS["SIGKILL"], at=pending("critiques") // 2)
        assert 0 <= spent(run.run).judge_calls - judge.served <= IN_FLIGHT
        assert run.go() == Exit.NOTHING_TO_TRAIN_ON, run.stderr
        assert judge.served <= spent(run.run).judge_calls <= limit


CRITIC = (
    *(
        f"critic.engine.concurrency={CONCURRENCY}",
        "critic.engine.model_name=m",
        "injection_guard=false",
    ),
    *("critic.templates=tiny", "critic.aspects=tiny"),
)
"""The settings of `lpfloop critique`."""


def start_critique(lake, path, judge):
    words = ["critique", str(path), "--critic", judge.url, "--run", "a", "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "lpfloop", *words, *(f"--set={setting}" for setting in CRITIC)],
        env={**os.environ, "LPFLOOP_LAKE": str(lake)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_resume_killed_critique(tmp_path):
    count = 150
    path, lake = tmp_path / "answers.jsonl", tmp_path / "lake"
    rows = [{"id": f"r{n}", "prompt": f"What is {n}?", "response": f"{n}"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = run_folder(lake, "a")
    with paid_judge(KINDS["critiques"][0]) as judge:
        process = start_critique(lake, path, judge)
        judge.end_client_at(count // 2, lambda: tell(run, SIGNALS["SIGKILL"], judge))
        process.communicate()
        assert process.returncode == -SIGNALS["SIGKILL"]
        stdout, stderr = start_critique(lake, path, judge).communicate()
        found = [json.loads(line) for line in stdout.splitlines()]
        assert [row["id"] for row in found] == [row["id"] for row in rows], stderr
        retried = sum(row["attempts"] - 1 for row in found)
        assert count + retried <= judge.served <= count + retried + IN_FLIGHT
        served, digest = judge.served, run_digest(run)
        again, _ = start_critique(lake, path, judge).communicate()
        assert (again, judge.served, run_digest(run)) == (stdout, served, digest)
