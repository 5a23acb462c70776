"""Every command that the pages show is run."""

import re
import shlex
from pathlib import Path

import pytest
from commands import call
from hand_judging import plain_run
from operated import EVALUATED, Operated
from terminals import Terminal

from lpfloop.loop.cli.app import PANELS, CommandGroup

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
TERMINAL_BLOCK = re.compile(r"^```sh terminal\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIVE_BLOCK = re.compile(r"^```sh live\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"in `([\w.]+)`:\n\n```(?:json|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands():
    """Return the `lpfloop` commands of all pages, each once, in order."""
    lines = [
        line.partition("#")[0].strip()
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        for line in block.splitlines()
    ]
    return list(dict.fromkeys(line for line in lines if line.startswith("lpfloop ")))


def shown_files():
    """Return the files that the guides show, by name: a line `in NAME:` and a block."""
    return {name: body for page in PAGES for name, body in FILE.findall(page.read_text())}


@pytest.mark.model
@pytest.mark.parametrize("command", commands())
def test_commands_of_the_guides_work(real_lake, tmp_path, command):
    for name, body in shown_files().items():
        (tmp_path / name).write_text(body)
    code, stdout, stderr = call(real_lake, *shlex.split(command)[1:], cwd=tmp_path)
    assert code == 0, stderr
    assert stdout


def terminal_commands():
    """Return the commands that people use by keys, each once."""
    blocks = (block for page in PAGES for block in TERMINAL_BLOCK.findall(page.read_text()))
    return list(dict.fromkeys(line for block in blocks for line in block.splitlines()))


@pytest.mark.crash
@pytest.mark.parametrize("command", terminal_commands())
def test_commands_with_keys_work_in_a_terminal(tmp_path, command):
    plain_run(tmp_path, name="tiny-rlrf")
    terminal = Terminal(*shlex.split(command)[1:], "--lake", tmp_path)
    terminal.read_until("quit")
    terminal.press("q")
    assert terminal.end() == 0, terminal.screen


LIVE_WORLD = {
    "LPFLOOP_POLICY__ENGINE__KIND": "scripted",
    "LPFLOOP_POLICY__ENGINE__SCRIPT": "operated:gated",
    "LPFLOOP_CRITIC__ENGINE__KIND": "scripted",
    "LPFLOOP_CRITIC__ENGINE__SCRIPT": "scripts:critic",
    "LPFLOOP_REWARD__MODEL": "none",
    "LPFLOOP_PROMPTS__PER_ITERATION": "6",
    "LPFLOOP_PROMPTS__EVALUATED": "2",
    "LPFLOOP_PROMPTS__DECIDING": "2",
    "LPFLOOP_PROMPTS__CHUNK": "1",
    "LPFLOOP_DRAIN_S": "0.1",
}


def live_blocks():
    """Return the blocks of commands that operate one living run, each in order."""
    return [block for page in PAGES for block in LIVE_BLOCK.findall(page.read_text())]


@pytest.mark.crash
@pytest.mark.parametrize("block", live_blocks())
def test_commands_that_operate_a_run_work_in_their_order(tmp_path, block):
    run = Operated(tmp_path, name="tiny-rlrf")
    run.environment.update(LIVE_WORLD)
    run.allow(EVALUATED + 1)
    try:
        for line in block.splitlines():
            code, stdout, stderr = run.call(*shlex.split(line)[1:])
            assert code == 0, f"{line}: {stderr}"
            assert stdout, line
    finally:
        run.end()


def test_every_command_is_documented():
    text = "\n".join(page.read_text() for page in PAGES)
    names = [
        name if word is None else f"{name} {word}"
        for commands in PANELS.values()
        for name, command in commands.items()
        for word in (command.commands if isinstance(command, CommandGroup) else [None])
    ]
    assert [name for name in names if not re.search(rf"(`|lpfloop ){name}\b", text)] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_readme_lists_the_variants():
    from lpfloop.loop.recipes import RECIPES

    text = (ROOT / "README.md").read_text()
    for name, variant in RECIPES.items():
        assert f"| `{name}` | {variant.paper} | {variant.summary} |" in text
