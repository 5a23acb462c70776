"""The smoke test before a run's first stage, and the limit of unreadable replies."""

import json
import re

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.journal_reader import Reader

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}, attempts: 1}
reward: {model: none}
prompts: {source: asked.jsonl, max_test: 4, chunk: 2}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 2, m: 0}
iterations: 1
"""
SMOKE = ("--set", "smoke.prompts=3", "--set", "smoke.train=false")
"""The critic of `scripts` omits the ratings of one reply in eight, and these are few."""
MUMBLING = ("--set", "critic.engine.script=scripts:mumbling_critic")


def ask(folder, count):
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(count)]
    (folder / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def lpfloop(tmp_path, monkeypatch):
    config = tmp_path / "c.yaml"
    config.write_text(SCRIPTED)
    ask(tmp_path, 20)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        begin = ["--config", str(config)] if words[0] == "run" else []
        place = ["--lake", str(tmp_path / "lake")]
        told = CliRunner().invoke(app, [*map(str, words), *begin, *place])
        return told.exit_code, told.stdout, " ".join(told.stderr.split())

    return call


def journal(tmp_path, name):
    return Reader(next((tmp_path / "lake").rglob(f"{name}/journal.sqlite")).parent)


def test_smoke_comes_first_and_keeps_digest(lpfloop, tmp_path):
    code, _, told = lpfloop("run", "--run", "a", *SMOKE)
    assert code == Exit.NOTHING_TO_TRAIN_ON, told
    assert "smoke test passed" in told
    made = [state.stage for state in journal(tmp_path, "a").stages()]
    assert made[:4] == ["prompts", "initial", "sample:smoke", "critique:smoke"]
    lpfloop("run", "--run", "b", "--set", "smoke.prompts=0")
    assert not [s.stage for s in journal(tmp_path, "b").stages() if "smoke" in s.stage]
    assert lpfloop("lake", "digest", "a")[1] == lpfloop("lake", "digest", "b")[1]
    status = json.loads(lpfloop("status", "a", "--json")[1])
    (side_eval,) = status["side_evals"]
    assert (side_eval["benchmark"], side_eval["counts"]["critiques"]) == ("smoke", 6)


def test_show_labels_smoke_test(lpfloop):
    lpfloop("run", "--run", "a", *SMOKE)
    twice = "select prompt_id from candidates group by prompt_id having count(*) = 4 limit 1"
    (row,) = json.loads(lpfloop("sql", twice, "a", "--json")[1])
    assert lpfloop("show", row["prompt_id"], "a")[1].count("of the smoke test") == 2


def test_unreadable_critic_stops_run(lpfloop, tmp_path):
    code, _, told = lpfloop("run", "--run", "a", *SMOKE, *MUMBLING)
    assert code == Exit.FAULT
    assert "6 of 6" in told
    assert "smoke.max_parse_failures" in told
    made = [state.stage for state in journal(tmp_path, "a").stages()]
    assert made == ["prompts", "initial", "sample:smoke", "critique:smoke"]
    assert lpfloop("resume", "a")[0] == Exit.FAULT
    code, _, told = lpfloop(
        "run", "--run", "a", *SMOKE, *MUMBLING, "--set", "smoke.max_parse_failures=1"
    )
    assert code == Exit.NOTHING_TO_TRAIN_ON, told
    made = [state.stage for state in journal(tmp_path, "a").stages()]
    assert made[2::2][:3] == ["sample:smoke", "sample:smoke-2", "sample:smoke-3"]
    events = journal(tmp_path, "a").events("smoke")
    assert [e["passed"] for e in events] == [False, False, True]


def test_cut_off_answers_stop_run(lpfloop, tmp_path):
    code, _, told = lpfloop("run", "--run", "a", *SMOKE, "--set", "policy.sampling.max_tokens=1")
    assert code == Exit.FAULT
    assert "none of the policy's 6 answers is whole (6 length)" in told
    assert "policy.sampling.max_tokens=1" in told
    made = [state.stage for state in journal(tmp_path, "a").stages()]
    assert made == ["prompts", "initial", "sample:smoke"]


def test_unreadable_stage_stops_after_enough(lpfloop, tmp_path):
    ask(tmp_path, 160)
    code, _, told = lpfloop("run", "--run", "a", *MUMBLING)
    assert code == Exit.FAULT, told
    assert re.search(r"critique:sample: (2\d\d) of \1 ", told)
    state = next(s for s in journal(tmp_path, "a").stages() if s.stage == "critique:sample")
    assert 200 <= state.totals["rows"] < 280
    code, _, told = lpfloop("run", "--run", "a", *MUMBLING, "--set", "smoke.max_parse_failures=1")
    assert code == Exit.NOTHING_TO_TRAIN_ON, told
