"""What is measured beside the loop leaves the run's digest and counts as they were."""

import json
import re

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.stores.beside import benchmark_beside, measured_beside

SETTINGS = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 12, evaluated: 6, deciding: 6, chunk: 2}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 2, m: 0}
assessment: {kl: false}
"""


def asked(folder, name, count):
    path = folder / f"{name}.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def lpfloop(tmp_path):
    """Call commands on a lake with the run `a`, which ends for want of pairs."""
    (tmp_path / "a.yaml").write_text(SETTINGS)

    def run(*words, code=0):
        told = CliRunner().invoke(app, [*map(str, words), "--lake", str(tmp_path / "lake")])
        assert told.exit_code == code, told.stderr
        return told.stdout

    run("run", "--config", tmp_path / "a.yaml", "--run", "a", code=4)
    return run


def standing(lpfloop):
    """Return the digest, and what the status says of the loop."""
    status = json.loads(lpfloop("status", "a", "--json"))
    told = [{k: v for k, v in turn.items() if k != "receipts"} for turn in status["iterations"]]
    for turn in told:
        turn["stages"] = [(stage["stage"], stage["rows"]) for stage in turn["stages"]]
        turn["seconds"] = sorted(turn["seconds"])
    return lpfloop("lake", "digest", "a"), told


def test_a_run_stays_as_it_was(lpfloop, tmp_path):
    before = standing(lpfloop)
    assert json.loads(lpfloop("status", "a", "--json"))["beside"] == []
    found = json.loads(
        lpfloop(
            "eval",
            "run",
            "a",
            "--prompts",
            asked(tmp_path, "mine", 6),
            "--json",
            "--iteration",
            "0",
        )
    )
    assert {row["benchmark"].partition("-")[0] for row in found} == {"mine"}
    assert standing(lpfloop) == before
    lpfloop("lake", "compact", "a")
    assert standing(lpfloop) == before
    (beside,) = json.loads(lpfloop("status", "a", "--json"))["beside"]
    assert beside["benchmark"] == found[0]["benchmark"]
    assert beside["iteration"] == 0
    made = {noun: count for noun, count in beside["counts"].items() if count}
    assert made == {"candidates": 6, "critiques": 6}
    assert {stage["done"] for stage in beside["stages"]} == {1, 3}
    shown = lpfloop("status", "a", "--format", "table")
    told = re.search("beside the loop, (.*): 6 candidates, 6 critiques", shown)
    assert told is not None
    assert told[1] == f"{beside['benchmark']}, iteration 0"
    rows = list(map(json.loads, lpfloop("status", "a", "--format", "jsonl").splitlines()))
    assert {row["beside"] for row in rows} == {None, beside["benchmark"]}


def test_each_measurement_has_a_digest_of_its_own(lpfloop, tmp_path):
    assert lpfloop("lake", "digest", "a", "--beside") == lpfloop("lake", "digest", "a")
    mine, other = asked(tmp_path, "mine", 6), asked(tmp_path, "other", 4)
    lpfloop("eval", "run", "a", "--prompts", mine)
    (first,) = json.loads(lpfloop("lake", "digest", "a", "--json"))["beside"].items()
    lpfloop("eval", "run", "a", "--prompts", other)
    lpfloop("eval", "run", "a", "--prompts", mine)
    found = json.loads(lpfloop("lake", "digest", "a", "--json"))
    assert (found["run"], found["digest"]) == ("a", lpfloop("lake", "digest", "a").strip())
    assert len({found["digest"], *found["beside"].values()}) == 3
    assert found["beside"][first[0]] == first[1]
    lines = lpfloop("lake", "digest", "a", "--beside").splitlines()
    assert lines[0] == found["digest"]
    assert lines[1:] == [f"{digest}  {name}" for name, digest in found["beside"].items()]


def test_a_fork_of_a_run_takes_nothing_that_was_measured_beside(lpfloop, tmp_path):
    config = ("--config", tmp_path / "a.yaml")
    lpfloop("run", *config, "--run", "plain", "--fork", "a", code=4)
    lpfloop("eval", "run", "a", "--prompts", asked(tmp_path, "mine", 6))
    lpfloop("run", *config, "--run", "forked", "--fork", "a", code=4)
    assert lpfloop("lake", "digest", "forked", "--beside") == lpfloop("lake", "digest", "plain")


LOOP = """
prompts sample critique:sample+refine evaluate:held-out measure:held-out kl:held-out
critique:evaluate:held-out evaluate:probes measure:probes complete:gpt-4-20240613
grade:complete:llama-0badcafe grade:complete:gpt:truth-12345678
"""
BESIDE = "evaluate critique:evaluate reward:evaluate measure assess kl-sample logprob kl"


@pytest.mark.parametrize("stage", LOOP.split())
def test_stages_of_the_loop_are_not_beside_it(stage):
    assert measured_beside(stage) is None


@pytest.mark.parametrize("name", ["mine", "a:b", "held-out", "measure:x", "\n", "x-01234567"])
@pytest.mark.parametrize("stage", BESIDE.split())
def test_stages_beside_the_loop_are_known(stage, name):
    benchmark = benchmark_beside(name, "0123456789abcdef")
    assert measured_beside(f"{stage}:{benchmark}") == benchmark
