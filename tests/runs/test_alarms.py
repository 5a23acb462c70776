"""A run stops at an alarm, and continues if the user asks for it."""

import importlib.util
import json

import pytest
from typer.testing import CliRunner
from world import FLATTERY, untrained_flatterer

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.journal_reader import Reader

SETTINGS = """
extends: tiny
policy: {engine: {kind: scripted, script: "world:flattering_policy"}}
critic: {engine: {kind: scripted, script: "world:flattered_critic"}, attempts: 1}
reward: {model: none}
prompts: {source: asked.jsonl, chunk: 20}
smoke: {prompts: 0}
training: {min_pairs: 1}
recipe: {name: rlrf, n: 4, m: 1}
iterations: 2
"""


@pytest.fixture
def lpfloop(tmp_path, monkeypatch):
    """Call commands on a lake with a policy that flatters once trained."""
    rows = [
        {
            "prompt": f"Say w{n}",
            "checks": [{"kind": "contains", "argument": f"w{n}"}],
            "split": "train" if n < 6 else "held-out" if n < 10 else "dev",
            "family": "words",
        }
        for n in range(50)
    ]
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "c.yaml").write_text(SETTINGS)
    (tmp_path / "lake").mkdir()
    monkeypatch.chdir(tmp_path)

    def call(*words):
        begin = ["--config", "c.yaml"] if words[0] == "run" else []
        told = CliRunner().invoke(app, [*map(str, words), *begin, "--lake", "lake"])
        return told.exit_code, told.stdout, " ".join(told.stderr.split())

    with untrained_flatterer(tmp_path / "lake"):
        yield call


def test_alarm_stops_run_then_resume(lpfloop, tmp_path):
    code, _, told = lpfloop("run", "--run", "a")
    assert code == Exit.REGRESSED
    assert "iteration 1" in told
    assert "--set alarms.on_alarm=continue" in told
    assert lpfloop("resume", "a")[0] == Exit.REGRESSED
    assert lpfloop("resume", "a", "--set", "alarms.on_alarm=perhaps")[0] == Exit.BAD_INPUT

    alarms = json.loads(lpfloop("alarms", "a", "--json")[1])
    (stopping, *_) = [a for a in alarms if a["stops"]]
    assert (stopping["iteration"], stopping["severity"]) == (1, "stop")
    assert stopping["code"] in told
    assert all(a["remedy"] for a in alarms)
    (example, *_) = alarms[0]["examples"]
    assert FLATTERY.strip() in lpfloop("show", example)[1]

    code, _, told = lpfloop("resume", "a", "--set", "alarms.on_alarm=continue")
    assert code == Exit.DONE, told
    assert alarms[0]["code"] in lpfloop("status", "a")[1]
    journal = Reader(tmp_path / "lake" / "runs" / "a")
    events = journal.events("end")
    journal.close()
    assert [str(e).partition(":")[0] for e in events] == ["AlarmStopError"] * 2 + ["done"]
    # The user has decided about iteration 1: the run does not stop there again.
    code, _, told = lpfloop("resume", "a", "--set", "alarms.on_alarm=stop", "--iterations", "2")
    assert code == Exit.DONE, told


@pytest.mark.parametrize("seeds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_bad_habits_are_stopped(root, seeds):
    """Simulated policies that lengthen, repeat or flatter, and honest ones."""
    spec = importlib.util.spec_from_file_location("simulated", root / "benchmarks" / "alarms.py")
    simulated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulated)
    assert set(simulated.HABITS) == {"lengthen", "repeat", "flatter"}
    for seed in range(2 * seeds):
        for habit in simulated.HABITS:
            assert simulated.stopped(seed, habit), (seed, habit)
    for seed in range(seeds):
        assert simulated.stopped(seed, None) == [], seed
