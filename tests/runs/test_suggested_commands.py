"""Suggested commands work in a shell for any name of the lake."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.address import DEFAULT_LAKE, in_lake, run_argument

COMMAND = re.compile(r"`(lpfloop [^`]*)`")
ROW = {"prompt": "Name a prime.", "response": "7", "ratings": {"honesty": 1}}


@pytest.fixture
def lake(tmp_path):
    return tmp_path / "Ada's lake; $HOME"


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_lake_option_is_quoted(lake):
    assert shlex.split(in_lake(lake)) == ["--lake", str(lake)]
    assert shlex.split(run_argument(lake / "runs" / "a")) == ["a", "--lake", str(lake)]
    assert in_lake(DEFAULT_LAKE) == ""


def test_suggestions_of_commands_run(lake, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    told = invoke("import", file, "--run", "x", "--lake", lake)
    assert told.exit_code == 0, told.stderr
    (command,) = COMMAND.findall(told.stderr)
    pasted = invoke(*shlex.split(command)[1:])
    assert pasted.exit_code == 0, pasted.stderr
    assert "1 candidates" in pasted.stdout


def test_suggestions_of_errors_name_the_lake(lake, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    invoke("import", file, "--run", "x", "--lake", lake)
    told = invoke("critic-check", "x", "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT
    command, _ = COMMAND.findall(told.stderr)
    assert shlex.split(command) == ["lpfloop", "view", "x", "--lake", str(lake)]
