"""`lpfloop config`: the settings of runs and commands, who set them, what differs, the schema."""

import json

import pytest
import yaml
from jsonschema import Draft202012Validator
from published import published_run
from typer.testing import CliRunner

from lpfloop import __version__
from lpfloop.configs.describe import every_field
from lpfloop.configs.json_schema import json_schema
from lpfloop.configs.load import load_config, presets, resolved, stored_config, variants
from lpfloop.configs.rendering import as_yaml, set_fields
from lpfloop.configs.schema import PRESETS, ConfigError
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
    journal.set_meta([("config", canonical_json(resolved(config)))])
    journal.close()
    return folder / "lake"


def invoke(lake, *arguments, env=None):
    return CliRunner().invoke(app, ["config", *map(str, arguments), "--lake", str(lake)], env=env)


def shown(lake, *arguments, env=None):
    told = invoke(lake, "show", *arguments, env=env)
    assert told.exit_code == 0, told.stderr
    return told.stdout


def refused(told, words):
    assert told.exit_code == Exit.BAD_INPUT, (told.stdout, told.stderr, told.exception)
    assert words in " ".join(told.stderr.split())


def test_a_runs_settings_are_shown_with_what_differs_from_the_defaults(lake):
    text = shown(lake, "r")
    assert text.startswith("# run r; what is not here is at its default")
    assert "seed: 7  # default 0" in text
    assert "    beta: 0.3  # default 0.1" in text
    assert "recipe:\n  name: ppo" in text
    assert "drain_s" not in text
    assert "drain_s: 30.0\n" in shown(lake, "r", "--defaults")
    assert shown(lake) == text


def test_the_options_of_a_run_are_shown_with_who_set_what(lake, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: own\nprompts: {chunk: 9}\n")
    options = ["--config", mine, "--seed", "3", "--set", "training.dpo.beta=0.2"]
    text = shown(lake, *options, env={"LPFLOOP_DRAIN_S": "5"})
    for line in (
        f"  chunk: 9  # {mine}; default 64",
        "seed: 3  # --seed; default 0",
        "    beta: 0.2  # --set; default 0.1",
        "drain_s: 5.0  # environment variable LPFLOOP_DRAIN_S; default 30.0",
        "  max_tokens: 512  # preset own/base.yaml; default 256",
    ):
        assert line in text.splitlines()


def test_what_is_shown_can_be_loaded(lake, tmp_path):
    (tmp_path / "again.yaml").write_text(shown(lake, "r"))
    again = load_config(str(tmp_path / "again.yaml"), None, (), {})
    first = load_config("tiny", "ppo", ["seed=7", "training.dpo.beta=0.3"], {})
    assert resolved(again) == resolved(first)


@pytest.mark.parametrize("world", presets())
@pytest.mark.parametrize("mode", ["fixed", "faithful_paper"])
def test_every_preset_is_the_same_after_it_was_shown(world, mode, tmp_path):
    for variant in variants():
        config = load_config(world, variant, [f"mode={mode}"], {})
        path = tmp_path / f"{variant}.yaml"
        path.write_text(as_yaml(set_fields(config), {}))
        assert resolved(load_config(str(path), None, (), {})) == resolved(config), variant


def test_a_key_is_told_of_and_not_shown(lake, tmp_path):
    secret = tmp_path / "secret.yaml"
    secret.write_text(f"extends: own\ncritic: {{engine: {{api_key: {KEY}}}}}\n")
    text = shown(lake, "--config", secret, "--defaults")
    assert "# critic.engine.api_key is set, and not shown" in text
    assert KEY not in text + shown(lake, "--config", secret, "--json")


def test_settings_are_shown_as_json(lake):
    found = json.loads(shown(lake, "--config", "own", "--seed", "4", "--json"))
    assert found["config"]["seed"] == 4
    assert found["sources"]["seed"] == "--seed"


def test_a_run_has_its_settings_and_takes_no_options(lake):
    refused(invoke(lake, "show", "r", "--seed", "3"), "r is a run, which has its settings")
    refused(invoke(lake, "show", "s"), "there is no run 's'")
    refused(invoke(lake, "show", "--set", "beta=1"), "did you mean 'training.dpo.beta' or")


def test_two_configurations_are_compared_field_by_field(lake, tmp_path, monkeypatch):
    monkeypatch.delenv("LPFLOOP_REPORT__EACH_ITERATION")
    same = invoke(lake, "diff", "r", "r", "--json")
    assert json.loads(same.stdout) == []
    rows = json.loads(invoke(lake, "diff", "r", "tiny", "--json").stdout)
    assert rows == [
        {"field": "seed", "r": "7", "tiny": "0", "effect": "semantic"},
        {"field": "training.dpo.beta", "r": "0.3", "tiny": "0.1", "effect": "semantic"},
    ]
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: tiny\nseed: 7\ndrain_s: 1\nrecipe: {name: rlrf}\n")
    rows = json.loads(invoke(lake, "diff", mine, "tiny", "--json").stdout)
    assert [(row["field"], row["effect"]) for row in rows] == [
        ("seed", "semantic"),
        ("drain_s", "live"),
    ]
    refused(invoke(lake, "diff", "r", "tinny"), "did you mean 'tiny'?")


def test_the_schema_lists_every_field_with_what_it_is():
    told = CliRunner().invoke(app, ["config", "schema", "--format", "jsonl"])
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(rows) == len(every_field())
    (beta,) = [row for row in rows if row["field"] == "training.dpo.beta"]
    assert beta["type"] == "number"
    assert beta["default"] == "0.1"
    assert beta["effect"] == "semantic"
    (kind,) = [row for row in rows if row["field"] == "critic.kind"]
    assert kind["type"] == "feedback | verifier | both"
    (share,) = [row for row in rows if row["field"] == "prompts.held_out_share"]
    assert share["range"] == ">= 0, <= 0.5"
    assert {row["field"] for row in rows} >= {"recipe.n (rlrf)", "recipe.n (dpo)"}


def test_every_field_has_a_description():
    assert [field.path for field in every_field() if not field.description.strip()] == []


def test_the_json_schema_takes_every_preset_and_refuses_what_loading_refuses():
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for path in PRESETS.rglob("*.yaml"):
        values = yaml.safe_load(path.read_text()) or {}
        assert [error.message for error in validator.iter_errors(values)] == [], path
    assert validator.is_valid({"recipe": {"name": "./mine.py:recipe", "anything": 1}})
    for wrong in ({"sede": 1}, {"seed": -1}, {"recipe": {"name": "dpo", "m": 4}}, {"mode": "odd"}):
        assert not validator.is_valid(wrong)
        with pytest.raises(ConfigError):
            stored_config(wrong, (), {})


def test_the_version_is_told():
    told = CliRunner().invoke(app, ["--version"])
    assert told.exit_code == 0
    assert told.stdout.startswith(f"lpfloop {__version__} (Python 3.")
