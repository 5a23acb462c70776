"""The commands as their users call them: what they print, refuse, and exit with."""

import json
import sqlite3

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.recipes import RECIPES

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 12, evaluated: 12, deciding: 12, chunk: 5}
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


def invoke(*arguments, env=None):
    return CliRunner().invoke(app, [str(a) for a in arguments], env=env)


def as_json(*arguments):
    told = invoke(*arguments, "--json")
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


def test_the_loop_says_why_it_did_not_train(lake, tmp_path):
    config = tmp_path / "scripted.yaml"
    config.write_text(SCRIPTED)
    told = invoke("run", "--config", config, "--run", "seen", "--lake", lake)
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON
    assert "fewer than training.min_pairs=100000" in told.stderr
    assert told.stdout == ""


def test_status_counts_what_an_iteration_made(lake):
    found = as_json("status", "seen", "--lake", lake)
    first, second = found["iterations"]
    assert first["iteration"] == 0
    assert first["checkpoint"]
    assert set(first["metrics"]) >= {
        "math_accuracy",
        "sentence_match",
        "general_fulfilled",
        "mean_length",
    }
    accuracy = first["metrics"]["math_accuracy"]
    assert set(accuracy) == {"value", "stderr", "n", "low", "high"}
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    assert second["counts"]["candidates"] > 12 * 3
    assert second["counts"]["critiques"] == second["counts"]["candidates"]
    assert second["counts"]["pairs"] > 0
    assert second["seconds"]["sample"] > 0


def test_status_says_how_busy_each_role_was(lake):
    found = as_json("status", "seen", "--lake", lake)
    busy = found["busy"]
    roles = {role["role"]: role for role in busy["roles"]}
    assert {"policy", "critic"} <= set(roles)
    made = found["iterations"][1]["counts"]["candidates"] + 12  # and those that are evaluated
    assert roles["policy"]["calls"] >= made
    assert roles["policy"]["seconds"] <= busy["wall_s"]
    assert busy["bottleneck"] is None  # of a run of seconds nothing is known
    told = invoke("status", "seen", "--lake", lake).stdout
    assert "busy: " in told
    assert "calls/s" in told


def test_status_can_be_of_one_iteration(lake):
    found = as_json("status", "seen", "--lake", lake, "--iteration", "1")
    assert [row["iteration"] for row in found["iterations"]] == [1]


def test_status_is_of_the_latest_run_if_none_is_named(lake):
    assert as_json("status", "--lake", lake)["run"] == "seen"
    assert invoke("status", "--lake", lake).exit_code == 0


def test_critiques_can_be_filtered(lake):
    bad = as_json("critiques", "seen", "--lake", lake, "--rating", "-1", "--iteration", "1")
    assert bad
    assert all(-1 in [a["rating"] for a in row["aspects"]] for row in bad)
    facts = as_json("critiques", "seen", "--lake", lake, "--aspect", "Factuality", "--limit", "3")
    assert len(facts) == 3
    assert all(row["aspects"][0]["name"] == "Factuality" for row in facts)
    math = as_json("critiques", "seen", "--lake", lake, "--task", "math")
    assert {a["name"] for row in math for a in row["aspects"]} == {"Logical Correctness"}
    unscored = as_json("critiques", "seen", "--lake", lake, "--unscored")
    assert all(row["status"] != "scored" and row["text"] for row in unscored)


def test_pairs_and_their_prompt_can_be_shown(lake):
    pair = as_json("pairs", "seen", "--lake", lake, "--limit", "1")[0]
    story = as_json("show", pair["prompt_id"], "--lake", lake)
    assert pair in story["pairs"]
    assert {pair["chosen_id"], pair["rejected_id"]} <= {
        row["candidate_id"] for row in story["candidates"]
    }
    shown = invoke("show", pair["prompt_id"][:18], "--lake", lake)
    assert shown.exit_code == 0
    assert "chosen of pair" in shown.stdout


def test_variants_are_listed_with_their_paper():
    listed = {row["name"]: row for row in as_json("config", "variants")}
    assert set(listed) == set(RECIPES)
    assert {"rlrf", "reward-only", "ppo", "quark"} < set(listed)
    assert all(set(row) == {"name", "paper", "summary"} for row in listed.values())


def test_evaluations_are_listed(lake):
    rows = as_json("eval", "run", "seen", "--lake", lake)
    assert {"iteration", "metric", "value", "stderr", "n"} <= set(rows[0])


def test_a_checkpoint_is_evaluated_on_prompts_of_the_users_own(lake, tmp_path):
    prompts = tmp_path / "mine.jsonl"
    lines = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(6)]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    rows = as_json("eval", "run", "seen", "--lake", lake, "--prompts", prompts)
    assert {row["benchmark"].partition("-")[0] for row in rows} == {"mine"}
    accuracy = next(row for row in rows if row["metric"] == "math_accuracy")
    assert accuracy["n"] == 6


def test_its_prompts_may_not_have_the_ids_of_others_in_the_run(lake, tmp_path):
    known = as_json("pairs", "seen", "--lake", lake, "--limit", "1")[0]["prompt_id"]
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text(json.dumps({"prompt_id": known, "prompt": "Something else?"}))
    done = invoke("eval", "run", "seen", "--lake", lake, "--prompts", prompts)
    assert done.exit_code == Exit.BAD_INPUT
    said = f"line 1: the id '{known}' is that of another prompt of the run"
    assert said in " ".join(done.stderr.split())


def test_control_characters_of_a_model_do_not_reach_the_terminal(lake):
    told = invoke("critiques", "seen", "--lake", lake)
    assert "\x1b" not in told.stdout


BAD_PROMPTS = {
    "missing.jsonl": (None, "missing.jsonl"),
    "empty.jsonl": (b"", "holds no prompts"),
    "notjson.jsonl": (b'{"prompt": "a"}\nnot json\n', "line 2"),
    "notext.jsonl": (b'{"reference": "5"}\n', "line 1"),
    "twice.jsonl": (
        b'{"prompt_id": "x", "prompt": "a"}\n{"prompt_id": "x", "prompt": "b"}\n',
        "line 2",
    ),
    "latin.jsonl": (b'{"prompt": "caf\xe9"}\n', "line 1"),
    "check.jsonl": (
        b'{"prompt": "a", "checks": [{"kind": "nonsense", "argument": "1"}]}\n',
        "nonsense",
    ),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_bad_prompts_are_refused_with_one_sentence_and_nothing_is_written(tmp_path, name):
    data, expected = BAD_PROMPTS[name]
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    told = invoke("run", "--config", "tiny", "--prompts", path, "--lake", tmp_path / "lake")
    refused(told, expected)
    assert not (tmp_path / "lake").exists()


TOYS = ["--prompts", "tiny", "--critic", "tiny"]
BAD_OPTIONS = {
    "variant": (["--variant", "rlfr"], "rlrf"),
    "config": (["--config", "tinny"], "tinny"),
    "key": (["--set", "recipe.nn=3"], "recipe"),
    "value": (["--set", "recipe.n=many"], "recipe"),
    "policy": (["--policy", "/nowhere/model", *TOYS], "/nowhere/model"),
    "critic": (["--critic", "http://127.0.0.1:9/v1", *TOYS[:2], "--policy", "tiny"], "127.0.0.1:9"),
    "run": (["--run", "a/b"], "a/b"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options_are_refused_with_one_sentence_and_nothing_is_written(tmp_path, name):
    options, expected = BAD_OPTIONS[name]
    told = invoke("run", *options, "--lake", tmp_path / "lake")
    refused(told, expected)
    assert not (tmp_path / "lake").exists()


def refused(told, expected):
    assert told.exit_code == Exit.BAD_INPUT, (told.stderr, told.exception)
    assert told.stderr.startswith("error: ")
    assert expected in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""


def test_a_lake_of_a_newer_schema_is_refused(lake, tmp_path):
    copy = tmp_path / "lake" / "runs" / "seen"
    copy.mkdir(parents=True)
    source = sqlite3.connect(lake / "runs" / "seen" / "journal.sqlite")
    target = sqlite3.connect(copy / "journal.sqlite")
    source.backup(target)
    source.close()
    target.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    target.commit()
    target.close()
    for command in (["status", "seen"], ["resume", "seen"], ["critiques", "seen"]):
        refused(invoke(*command, "--lake", tmp_path / "lake"), "upgrade lpfloop")


@pytest.mark.parametrize("command", ["status", "critiques", "pairs", "eval run", "resume"])
def test_a_run_that_is_not_there_is_named_with_those_that_are(lake, command):
    told = invoke(*command.split(), "unseen", "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT
    assert "seen" in told.stderr
