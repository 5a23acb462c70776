"""`lpfloop config`: settings of runs and commands, their sources, differences, the schema."""

import json

import pytest
from lakes import published_run
from typer.testing import CliRunner

from lpfloop.configs.load import load_config, resolve_config
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.stores.journal import Journal
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import run_folder

KEY = "a-secret-key-of-mine"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with a run of the tiny world with seed 7 and another beta."""
    folder = tmp_path_factory.mktemp("configured")
    policy = folder / "policy"
    policy.mkdir()
    (policy / "config.json").write_text("{}")
    published_run(folder / "lake", policy)
    config = load_config("tiny", "ppo", ["seed=7", "training.dpo.beta=0.3"], {})
    journal = Journal(run_folder(folder / "lake", "r"))
    journal.set_meta([("config", canonical_json(resolve_config(config)))])
    journal.close()
    return folder / "lake"


def invoke(lake, *arguments):
    return CliRunner().invoke(app, ["config", *map(str, arguments), "--lake", str(lake)])


def shown(lake, *arguments):
    told = invoke(lake, "show", *arguments)
    assert told.exit_code == 0, told.stderr
    return told.stdout


def test_settings_of_a_run(lake):
    text = shown(lake, "r")
    assert "seed: 7  # default 0" in text
    assert "    beta: 0.3  # default 0.1" in text
    assert "recipe:\n  name: ppo" in text
    assert "shutdown_timeout_s" not in text
    assert "shutdown_timeout_s: 30.0\n" in shown(lake, "r", "--defaults")
    assert shown(lake) == text


def test_who_set_what(lake, tmp_path, environ):
    environ["LPFLOOP_SHUTDOWN_TIMEOUT_S"] = "5"
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: own\nprompts: {chunk: 9}\n")
    options = ["--config", mine, "--set", "training.dpo.beta=0.2"]
    text = shown(lake, *options)
    for line in (
        f"  chunk: 9  # {mine}; default 64",
        "    beta: 0.2  # --set; default 0.1",
        "shutdown_timeout_s: 5.0  # environment variable LPFLOOP_SHUTDOWN_TIMEOUT_S; default 30.0",
        "  max_tokens: 512  # preset own/base.yaml; default 256",
    ):
        assert line in text.splitlines()


def test_key_is_not_shown(lake, tmp_path):
    secret = tmp_path / "secret.yaml"
    secret.write_text(f"extends: own\ncritic: {{engine: {{api_key: {KEY}}}}}\n")
    text = shown(lake, "--config", secret, "--defaults")
    assert "critic.engine.api_key" in text
    assert KEY not in text + shown(lake, "--config", secret, "--json")


def test_differences(lake):
    same = invoke(lake, "diff", "r", "r", "--json")
    assert json.loads(same.stdout) == []
    rows = json.loads(invoke(lake, "diff", "r", "tiny", "--json").stdout)
    assert rows == [
        {"field": "seed", "r": "7", "tiny": "0", "effect": "semantic"},
        {"field": "training.dpo.beta", "r": "0.3", "tiny": "0.1", "effect": "semantic"},
    ]
    told = invoke(lake, "diff", "r", "tinny")
    assert (told.exit_code, "tiny" in told.stderr) == (Exit.BAD_INPUT, True)
