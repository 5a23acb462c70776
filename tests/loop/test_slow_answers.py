"""A run whose answers mostly cannot be compared in time stops with the reason."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.configs.schema import RunConfig
from lpfloop.critics import math_pool
from lpfloop.critics.math_answers import final_answer
from lpfloop.critics.math_pool import MathPool
from lpfloop.loop.cli.app import app
from lpfloop.loop.run.slow_answers import TooManyTimeoutsError, verifier_of

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {kind: verifier}
reward: {model: none}
prompts: {per_iteration: 40, evaluated: 2, chunk: 8}
recipe: {name: rlrf, n: 3, m: 0}
"""


@pytest.fixture
def slow(monkeypatch, tmp_path):
    """A worker whose every comparison has taken too long."""
    worker = tmp_path / "worker.py"
    said = "import sys\nprint('\"ready\"', flush=True)\n"
    said += "for line in sys.stdin: print('\"timeout\"', flush=True)\n"
    worker.write_text(said, "utf-8")
    monkeypatch.setattr(math_pool, "WORKER", worker)


def test_a_run_stops_with_the_reason_and_goes_on_with_a_higher_share(slow, tmp_path) -> None:
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


def test_few_timeouts_stop_nothing_and_a_stop_leaves_no_process(slow) -> None:
    verifier = verifier_of(RunConfig(), None)
    jobs = [(final_answer("x"), final_answer("y"))]
    for _ in range(49):
        verifier._count("timeout")
    with pytest.raises(TooManyTimeoutsError, match="50 of 50"):
        verifier._count("timeout")
    pool = MathPool(1, 10, on_outcome=lambda _: verifier._count("timeout"))
    with pytest.raises(TooManyTimeoutsError):
        pool.compare(jobs)
    assert not pool.started
    calm = verifier_of(RunConfig(), None)
    for _ in range(100):
        for outcome in (*["equal"] * 4, "timeout"):
            calm._count(outcome)
