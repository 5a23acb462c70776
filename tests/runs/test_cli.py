"""The commands in their users' hands: output, refusals, exit codes."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 12, max_test: 12, max_dev: 12, chunk: 5}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 3, m: 1}
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with one scripted run, `seen`, that stopped before training."""
    folder = tmp_path_factory.mktemp("cli")
    config = folder / "scripted.yaml"
    config.write_text(SCRIPTED)
    told = invoke("run", "--config", config, "--run", "seen", "--lake", folder / "lake")
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    return folder / "lake"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def as_json(*arguments):
    told = invoke(*arguments, "--json")
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


def test_status_counts_rows(lake):
    found = as_json("status", "seen", "--lake", lake)
    first, second = found["iterations"]
    assert first["checkpoint"]
    accuracy = first["metrics"]["math_accuracy"]
    assert set(accuracy) == {"value", "stderr", "n", "low", "high"}
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    assert second["counts"]["candidates"] > 12 * 3
    assert second["counts"]["critiques"] == second["counts"]["candidates"]
    assert second["counts"]["pairs"] > 0
    assert second["seconds"]["sample"] > 0
    assert as_json("status", "--lake", lake)["run"] == "seen"


def test_status_begins_with_needs_and_hides_stages(lake):
    words = ("status", "seen", "--lake", lake)
    short, whole = invoke(*words).stdout, invoke(*words, "--stages").stdout
    first, *rest = short.splitlines()
    assert first.startswith("needs you")
    assert any(line.startswith("run seen: ended") for line in rest)
    assert "critique:sample" not in short
    assert "critique:sample" in whole


def test_critiques_can_be_filtered(lake):
    bad = as_json("critiques", "seen", "--lake", lake, "--rating", "-1", "--iteration", "1")
    assert bad
    assert all(-1 in [a["rating"] for a in row["aspects"]] for row in bad)
    facts = as_json("critiques", "seen", "--lake", lake, "--aspect", "Factuality", "--limit", "3")
    assert [row["aspects"][0]["name"] for row in facts] == ["Factuality"] * 3


def test_pair_and_prompt_are_shown(lake):
    pair = as_json("pairs", "seen", "--lake", lake, "--limit", "1")[0]
    story = as_json("show", pair["prompt_id"], "--lake", lake)
    assert pair in story["pairs"]
    assert {pair["chosen_id"], pair["rejected_id"]} <= {
        row["candidate_id"] for row in story["candidates"]
    }
    assert pair["pair_id"][:12] in invoke("show", pair["prompt_id"][:18], "--lake", lake).stdout


BAD_PROMPTS = {
    "missing.jsonl": (None, "missing.jsonl"),
    "notjson.jsonl": (b'{"prompt": "a"}\nnot json\n', "line 2"),
    "latin.jsonl": (b'{"prompt": "caf\xe9"}\n', "line 1"),
}


def test_bad_prompts_are_refused(tmp_path):
    for name, (data, expected) in BAD_PROMPTS.items():
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        told = invoke("run", "--config", "tiny", "--prompts", path, "--lake", tmp_path / "lake")
        refused(told, "LPF-102", expected)
        assert not (tmp_path / "lake").exists()


TOYS = ["--prompts", "tiny", "--critic", "tiny"]
BAD_OPTIONS = {
    "recipe": (["--recipe", "rlfr"], "LPF-101", "rlrf"),
    "key": (["--set", "recipe.nn=3"], "LPF-101", "recipe"),
    "policy": (["--policy", "/nowhere/model", *TOYS], "LPF-301", "/nowhere/model"),
    "critic": (
        ["--critic", "http://127.0.0.1:9/v1", *TOYS[:2], "--policy", "tiny"],
        "LPF-301",
        "127.0.0.1:9",
    ),
}


def test_bad_options_are_refused(tmp_path):
    for options, code, expected in BAD_OPTIONS.values():
        told = invoke("run", *options, "--lake", tmp_path / "lake")
        refused(told, code, expected)
        assert not (tmp_path / "lake").exists()


def test_run_without_a_model_prints_both_ways_to_start(tmp_path):
    for options in ((), ("--iterations", "2"), ("--run", "a", "--dry-run")):
        told = invoke("run", *options, "--lake", tmp_path / "lake")
        assert (told.exit_code, told.stdout) == (Exit.BAD_INPUT, "")
        assert "lpfloop demo" in told.stderr
        assert "lpfloop run --policy" in told.stderr
        assert not (tmp_path / "lake").exists()


def test_demo_is_a_run_of_the_tiny_preset(tmp_path):
    words = ("--dry-run", "--lake", tmp_path / "lake", "--set", "prompts.per_iteration=8")
    told = [invoke("demo", *words), invoke("run", "--config", "tiny", "--iterations", 2, *words)]
    assert told[0].exit_code == 0, told[0].stderr
    assert told[0].stdout == told[1].stdout


def refused(told, code, expected):
    assert told.exit_code == Exit.BAD_INPUT, (told.stderr, told.exception)
    assert told.stderr.startswith(f"error {code}: ")
    assert expected in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""
