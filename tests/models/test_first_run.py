"""The docs page on a first real run: each of its commands runs, in order."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from http_server import serving_critic
from models import make_family

from lpfloop.loop.cli.app import Exit

PAGE = (Path(__file__).parents[2] / "docs" / "your-model.md").read_text()
BLOCK = re.compile(r"^```sh first\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"in\s`([\w.]+)`[^`]*?:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCK.findall(PAGE) for line in block.splitlines()]
CRITIC = "http://127.0.0.1:8000/v1"
LIMIT_S = 500

pytestmark = [pytest.mark.model, pytest.mark.slow]


def told(folder: Path, line: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page in a folder, to its end."""
    words = shlex.split(line)
    begin = [sys.executable, *(["-m"] if words[0] == "lpfloop" else [])]
    words = words if words[0] == "lpfloop" else words[1:]
    return subprocess.run(
        [*begin, *words, *more],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.fixture
def folder(tmp_path):
    """A folder with the page's files and the prompts that they make."""
    for name, body in FILE.findall(PAGE):
        (tmp_path / name).write_text(body)
    line, _, output = COMMANDS[0].partition(" > ")
    (tmp_path / output).write_text(told(tmp_path, line).stdout)
    names = {"prompts.py", "prompts.jsonl", "first.yaml"}
    assert {path.name for path in tmp_path.iterdir()} == names
    return tmp_path


def test_commands_of_the_page(folder):
    make_family("qwen-2.5", folder / "my-model")
    with serving_critic() as url:
        for line in COMMANDS[1:]:
            made = told(folder, line.replace(CRITIC, url))
            assert made.returncode == Exit.DONE, f"{line}: {made.stderr}"
            assert made.stdout
    status = json.loads(told(folder, "lpfloop status first --json").stdout)
    first, second = (turn["metrics"]["math_accuracy"] for turn in status["iterations"])
    assert first["n"] == second["n"] == 11
    assert second["value"] >= first["value"]
