"""Measurements outside the loop change neither the run's digest nor its counts."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner
from world import copied, write_prompts

from lpfloop.loop.cli.app import app

SETTINGS = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {source: own.jsonl, held_out_share: 0.25, per_iteration: 4, max_test: 2, max_dev: 2}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 2, m: 0}
assessment: {kl: false}
"""


def asked(folder, name, count):
    path = folder / f"{name}.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def called(lake, *words, code=0):
    done = CliRunner().invoke(app, [*map(str, words), "--lake", str(lake)])
    assert done.exit_code == code, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a lake whose run `a` has ended, for lack of pairs."""
    folder = tmp_path_factory.mktemp("side_evals")
    source = write_prompts(folder).rename(folder / "own.jsonl")
    (folder / "a.yaml").write_text(SETTINGS.replace("own.jsonl", str(source)))
    called(folder / "lake", "run", "--config", folder / "a.yaml", "--run", "a", code=4)
    return folder


@pytest.fixture
def lpfloop(made, tmp_path):
    """Call commands on a copy of the lake."""
    lake = copied(made / "lake", tmp_path / "lake")
    return partial(called, lake)


def standing(lpfloop):
    """Return the run's digest, and the iterations of its status."""
    status = json.loads(lpfloop("status", "a", "--json"))
    told = [
        {k: v for k, v in turn.items() if k != "filter_counts"} for turn in status["iterations"]
    ]
    for turn in told:
        turn["stages"] = [(stage["stage"], stage["rows"]) for stage in turn["stages"]]
        turn["seconds"] = sorted(turn["seconds"])
    return lpfloop("lake", "digest", "a"), told


def test_run_stays_as_it_was(lpfloop, tmp_path):
    before = standing(lpfloop)
    assert json.loads(lpfloop("status", "a", "--json"))["side_evals"] == []
    options = ("--prompts", asked(tmp_path, "mine", 6), "--json", "--iteration", "0")
    found = json.loads(lpfloop("eval", "run", "a", *options))
    assert {row["benchmark"].partition("-")[0] for row in found} == {"mine"}
    assert standing(lpfloop) == before
    (side_eval,) = json.loads(lpfloop("status", "a", "--json"))["side_evals"]
    assert side_eval["benchmark"] == found[0]["benchmark"]
    assert side_eval["iteration"] == 0
    made = {noun: count for noun, count in side_eval["counts"].items() if count}
    assert made == {"candidates": 6, "critiques": 6}
