"""`lpfloop init`: the configuration of a first run, from options or from three answers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit

ROW = {"prompt": "What is 2 + 3?", "reference": "5", "task": "math"}
OWN = ("--policy", "tiny", "--prompts", "prompts.jsonl", "--critic", "tiny")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [ROW | {"prompt": f"What is 2 + {n}?", "reference": str(n + 2)} for n in range(12)]
    Path("prompts.jsonl").write_text("\n".join(json.dumps(row) for row in rows))


def invoke(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def refused(told, reason):
    assert (told.exit_code, told.stdout) == (Exit.BAD_INPUT, "")
    assert told.stderr.startswith("error LPF-")
    assert reason in told.stderr
    assert told.stderr.count("\n") == 1


def test_file_makes_what_options_would():
    changed = ["training.dpo.beta=0.3", "policy.engine.cpu_threads=1"]
    options = [word for setting in changed for word in ("--set", setting)]
    told = invoke("init", *OWN, *options, "--recipe", "critique-model")
    assert told.exit_code == Exit.DONE, told.stderr
    assert told.stdout == "lpfloop.yaml\n"
    said = ["policy.model=tiny", "critic.model=tiny", "prompts.source=prompts.jsonl"]
    meant = load_config("own", "critique-model", [*said, *changed], {})
    assert load_config("lpfloop.yaml", None, (), {}) == meant


def test_dry_run_takes_it():
    told = invoke("init", *OWN)
    assert "`lpfloop run --config lpfloop.yaml --dry-run`" in told.stderr
    planned = invoke("run", "--config", "lpfloop.yaml", "--dry-run")
    assert planned.exit_code == Exit.DONE, planned.stderr
    assert "to train on" in planned.stdout


def test_bad_input_writes_nothing(subtests):
    for words, reason in [
        ((*OWN[:2], "--prompts", "none.jsonl", *OWN[4:]), "--prompts none.jsonl: cannot be read"),
        (("--policy", "nowhere", *OWN[2:]), "--policy nowhere: no such model folder"),
        (OWN[:4], "--critic is missing"),
        ((*OWN, "--recipe", "rlhf"), "did you mean 'rlrf'?"),
        ((*OWN, "--set", "critic.engine.api_key=x"), "LPFLOOP_API_KEY"),
    ]:
        with subtests.test(case=words):
            refused(invoke("init", *words, "new/mine.yaml"), reason)
            assert not Path("new").exists()


def test_replaced_only_by_force():
    Path("lpfloop.yaml").write_text("seed: 7\n")
    refused(invoke("init", *OWN), "add --force")
    assert Path("lpfloop.yaml").read_text() == "seed: 7\n"
    assert invoke("init", *OWN, "--force").exit_code == Exit.DONE
    assert "prompts.jsonl" in Path("lpfloop.yaml").read_text()


def test_verifier_as_the_critic():
    assert invoke("init", *OWN[:4], "--critic", "verifier").exit_code == Exit.DONE
    critic = load_config("lpfloop.yaml", None, (), {}).critic
    assert (critic.kind, critic.model) == ("verifier", "none")
