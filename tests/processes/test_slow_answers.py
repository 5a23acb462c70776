"""A run stops with the reason if most comparisons of its answers time out."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.critics import math_pool
from lpfloop.loop.cli.app import app

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {kind: verifier}
reward: {model: none}
prompts: {per_iteration: 40, max_test: 2, chunk: 8}
recipe: {name: rlrf, n: 3, m: 0}
"""


@pytest.fixture
def slow(monkeypatch, tmp_path):
    """A worker whose every comparison times out."""
    worker = tmp_path / "worker.py"
    said = "import sys\nprint('\"ready\"', flush=True)\n"
    said += "for line in sys.stdin: print('\"timeout\"', flush=True)\n"
    worker.write_text(said, "utf-8")
    monkeypatch.setattr(math_pool, "WORKER", worker)


def test_a_run_with_timeouts_stops(slow, tmp_path) -> None:
    prompts, config = tmp_path / "p.jsonl", tmp_path / "c.yaml"
    rows = [{"problem": f"{n} + x?", "solution": "\\boxed{x + 1}"} for n in range(44)]
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    config.write_text(SCRIPTED)
    lake = ["--run", "a", "--lake", str(tmp_path / "lake")]
    words = ["run", "--config", str(config), "--prompts", str(prompts), *lake]

    def told(*more: str):
        return CliRunner().invoke(app, [*words, *more])

    stopped = told()
    said = " ".join(stopped.stderr.split())
    assert stopped.exit_code == 3, said
    assert "50 of 50 answers to math took too long to compare" in said
    assert "critic.most_timeouts=0.2" in said
    assert told("--set", "critic.most_timeouts=0.9").exit_code == 3
    done = told("--set", "critic.most_timeouts=1")
    assert done.exit_code == 4, done.stderr
