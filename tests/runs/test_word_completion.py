"""Completions at the Tab key: fast, from the current folder, and without error output."""

import pytest
from typer.testing import CliRunner

from lpfloop.configs.load import fields, presets
from lpfloop.loop.cli.app import app
from lpfloop.loop.recipes import RECIPES


@pytest.fixture
def lake(tmp_path):
    for name in ("first", "second"):
        (tmp_path / "lake" / "runs" / name).mkdir(parents=True)
    return tmp_path / "lake"


def offered(environ, *words):
    """Return bash's completions of the last word."""
    asked = {"_LPFLOOP_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words))}
    line = " ".join(("lpfloop", *map(str, words)))
    environ.update(asked, COMP_WORDS=line)
    told = CliRunner().invoke(app, prog_name="lpfloop")
    assert (told.exit_code, told.stderr) == (0, "")
    return told.stdout.split()


def test_runs_of_the_lake(lake, monkeypatch, environ):
    monkeypatch.chdir(lake.parent)
    for words in (("status",), ("lake", "gc"), ("sql", "select")):
        assert offered(environ, *words, "") == ["first", "second"]
        assert offered(environ, *words, "se") == ["second"]


def test_fields_recipes_and_presets(tmp_path, monkeypatch, environ):
    monkeypatch.chdir(tmp_path)
    assert offered(environ, "run", "--set", "training.dpo.be") == ["training.dpo.beta="]
    secret = next(field.path for field in fields() if field.secret)
    assert offered(environ, "run", "--set", secret) == []
    assert set(offered(environ, "run", "--recipe", "")) == set(RECIPES)
    (tmp_path / "mine.yaml").touch()
    assert offered(environ, "run", "--config", "") == [*presets(), "mine.yaml"]
