"""What a shell offers at the Tab key: quickly, from the folder at hand, and never loudly."""

import pytest
from startup import times_libraries
from typer.testing import CliRunner

from lpfloop.configs.load import fields, presets
from lpfloop.loop.cli.app import app
from lpfloop.loop.recipes import RECIPES

SCRIPT = "import sys; sys.argv = ['lpfloop']; from lpfloop.loop.cli.app import main; main()"


@pytest.fixture
def lake(tmp_path):
    for name in ("first", "second"):
        (tmp_path / "lake" / "runs" / name).mkdir(parents=True)
    return tmp_path / "lake"


def offered(*words, env=None):
    """Return what bash is offered for the last of the words."""
    asked = {"_LPFLOOP_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words))}
    line = " ".join(("lpfloop", *map(str, words)))
    told = CliRunner(env={**(env or {}), **asked, "COMP_WORDS": line}).invoke(
        app, prog_name="lpfloop"
    )
    assert (told.exit_code, told.stderr) == (0, "")
    return told.stdout.split()


def test_commands_are_offered():
    assert offered("la") == ["launch", "lake"]
    assert offered("lake", "re") == ["repair", "reindex", "reparse"]


@pytest.mark.parametrize(
    "words", [("status",), ("pairs",), ("lake", "gc"), ("export",), ("model",), ("show", "--run")]
)
def test_the_runs_of_the_lake_are_offered(words, lake, monkeypatch):
    monkeypatch.chdir(lake.parent)
    assert offered(*words, "") == ["first", "second"]
    assert offered(*words, "se") == ["second"]


def test_the_lake_is_that_of_the_line_or_of_the_environment(lake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "lake" / "runs")
    assert offered("status", "--lake", lake, "f") == ["first"]
    assert offered("status", "f", env={"LPFLOOP_LAKE": str(lake)}) == ["first"]
    assert offered("status", "f") == []
    assert not (tmp_path / "lake" / "runs" / "lake").exists()


def test_fields_recipes_and_presets_are_offered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert offered("run", "--set", "training.dpo.be") == ["training.dpo.beta="]
    secret = next(field.path for field in fields() if field.secret)
    assert offered("run", "--set", secret) == []
    assert set(offered("run", "--variant", "")) == set(RECIPES)
    (tmp_path / "mine.yaml").touch()
    assert offered("run", "--config", "") == [*presets(), "mine.yaml"]


def test_live_fields_follow_get_and_set(lake, monkeypatch):
    monkeypatch.chdir(lake.parent)
    assert offered("ctl", "") == ["get", "set", "first", "second"]
    assert "budget.hours=" in offered("ctl", "first", "set", "budget.")
    assert "budget.hours" in offered("ctl", "get", "budget.")


def test_it_answers_while_a_person_waits():
    env = {"_LPFLOOP_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    assert times_libraries(SCRIPT, {**env, "COMP_WORDS": "lpfloop run --set training."}) < 6
