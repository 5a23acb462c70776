"""`lpfloop init`: the configuration of a first run, from options or from three answers."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.starter import SUGGESTED
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit

ROW = {"prompt": "What is 2 + 3?", "reference": "5", "task": "math"}
OWN = ("--policy", "tiny", "--prompts", "prompts.jsonl", "--critic", "tiny")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [ROW | {"prompt": f"What is 2 + {n}?", "reference": str(n + 2)} for n in range(12)]
    Path("prompts.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def refused(told, reason):
    assert (told.exit_code, told.stdout) == (Exit.BAD_INPUT, "")
    assert told.stderr.startswith("error: ")
    assert reason in told.stderr
    assert told.stderr.count("\n") == 1


def test_the_file_makes_what_the_options_would():
    told = invoke("init", *OWN, "--set", "training.dpo.beta=0.3", "--variant", "critique-model")
    assert told.exit_code == Exit.DONE, told.stderr
    assert told.stdout == "lpfloop.yaml\n"
    said = ["policy.model=tiny", "critic.model=tiny", "prompts.source=prompts.jsonl"]
    meant = load_config("own", "critique-model", [*said, "training.dpo.beta=0.3"], {})
    assert load_config("lpfloop.yaml", None, (), {}) == meant


def test_a_dry_run_takes_it_and_the_next_commands_are_told():
    told = invoke("init", *OWN)
    plan, run = (line for line in told.stderr.splitlines())
    assert "`lpfloop run --config lpfloop.yaml --dry-run`" in plan
    assert "`lpfloop run --config lpfloop.yaml`" in run
    planned = invoke("run", "--config", "lpfloop.yaml", "--dry-run")
    assert planned.exit_code == Exit.DONE, planned.stderr
    assert "7 to train on" in planned.stdout or "to train on (math)" in planned.stdout


def test_each_setting_says_what_it_means_and_a_suggestion_can_be_taken():
    invoke("init", *OWN)
    text = Path("lpfloop.yaml").read_text()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if ": " in line and "#" not in line and not line.startswith("extends"):
            assert lines[number - 1].lstrip().startswith("#"), line
    assert max(map(len, lines)) <= 100
    taken = text.replace("# budget:", "budget:").replace("#   # wall", "  # wall")
    taken = taken.replace("#   hours: 8", "  hours: 8")
    Path("taken.yaml").write_text(taken)
    assert load_config("taken.yaml", None, (), {}).budget.hours == SUGGESTED["budget.hours"]


def test_the_tiny_world_alone_is_the_tiny_preset():
    invoke("init", "--policy", "tiny", "--prompts", "tiny", "--critic", "tiny", "toy")
    assert load_config("toy/lpfloop.yaml", None, (), {}) == load_config("tiny", None, (), {})


def test_places_hold_from_another_folder_too(folder):
    told = invoke("init", *OWN, "there")
    assert told.exit_code == Exit.DONE, told.stderr
    values = yaml.safe_load(Path("there/lpfloop.yaml").read_text())
    assert values["prompts"]["source"] == str(folder / "prompts.jsonl")
    assert values["policy"]["model"] == "tiny"


def test_what_the_hub_has_is_fetched_by_the_next_command():
    told = invoke("init", "--policy", "owner/model", *OWN[2:4], "--critic", "http://127.0.0.1:9/v1")
    assert told.exit_code == Exit.DONE, told.stderr
    assert "--download --dry-run" in told.stderr
    assert "owner/model" in told.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((*OWN[:2], "--prompts", "none.jsonl", *OWN[4:]), "--prompts none.jsonl: cannot be read"),
        (("--policy", "nowhere", *OWN[2:]), "--policy nowhere: no such model folder"),
        ((*OWN[:4], "--critic", "."), "--critic .: not a model"),
        (OWN[:4], "--critic is missing"),
        ((*OWN, "--variant", "rlhf"), "did you mean 'rlrf'?"),
        ((*OWN, "--set", "beta=1"), "did you mean 'training.dpo.beta' or"),
        ((*OWN, "--set", "critic.engine.api_key=x"), "LPFLOOP_API_KEY"),
        ((*OWN, "--variant", "dpo"), "annotation"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_written(words, reason):
    refused(invoke("init", *words, "new/mine.yaml"), reason)
    assert not Path("new").exists()


def test_a_file_is_replaced_only_by_force():
    Path("lpfloop.yaml").write_text("seed: 7\n")
    refused(invoke("init", *OWN), "add --force")
    assert Path("lpfloop.yaml").read_text() == "seed: 7\n"
    assert invoke("init", *OWN, "--force").exit_code == Exit.DONE
    assert "prompts.jsonl" in Path("lpfloop.yaml").read_text()


def test_three_answers_are_enough_and_a_wrong_one_is_asked_again():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lpfloop", "init"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"nowhere\ntiny\nprompts.jsonl\ntiny\n")
    stdout, stderr = process.communicate(timeout=300)
    os.close(ours)
    assert (process.returncode, stdout) == (Exit.DONE, "lpfloop.yaml\n"), stderr
    assert "error: nowhere: no such model folder" in stderr
    assert stderr.count("Which model shall be improved?") == 2
    assert yaml.safe_load(Path("lpfloop.yaml").read_text())["critic"]["model"] == "tiny"
