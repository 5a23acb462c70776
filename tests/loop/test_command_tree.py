"""The commands as a person meets them: panels, help at any width, one name for one option."""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
import typer.main
from told import told_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import PANELS, CommandGroup, app
from lpfloop.loop.cli.common import Exit

TREE: Any = typer.main.get_command(app)
MEANINGS = {
    "--force": "Replace ",
    "--against": "Also show the lead over this",
    "--as": "Layout of the files",
    "--aspect": "Only this aspect",
    "--by": "Group by this",
    "--config": "Preset or YAML file",
    "--critic": "Critic: ",
    "--derived": "Read this derived table",
    "--dry-run": "Only tell what would be done",
    "--format": "Format of rows: ",
    "--gpus": "GPUs ",
    "--iteration": "Only this iteration",
    "--json": "Print JSON: ",
    "--limit": "At most N",
    "--max-length": "Length at most N",
    "--metric": "Metric ",
    "--min-length": "Length at least N",
    "--output": "What to write: ",
    "--port": "Port to listen on",
    "--preferences": "File of preferences",
    "--prompts": "Prompts: ",
    "--reward": "Reward model: ",
    "--rating": "Only with this rating",
    "--rule": "Pairing rule",
    "--run": "Name of the run",
    "--seed": "Root of all random draws",
    "--seeds": "How many seeds from --seed on",
    "--split": "Only these prompts",
    "--table": "Table to ",
    "--variant": "Recipe: ",
}
"""What an option means wherever it stands, where its helps differ in the rest."""


def walked(command: Any = TREE, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the name and the command of each leaf."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from walked(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


LEAVES = dict(walked())


@pytest.fixture(scope="module")
def made_lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree") / "lake"
    told_run(folder)
    return folder


OPTIONS = [
    (name, option)
    for name, command in LEAVES.items()
    for option in command.params
    if option.param_type_name == "option" and not option.hidden and option.name != "help"
]


def helped(*words: str) -> str:
    """Return the help of a command, for a terminal as wide as `COLUMNS` says."""
    with redirect_stdout(StringIO()) as told:
        TREE.main([*words, "--help"], prog_name="lpfloop", standalone_mode=False)
    return told.getvalue()


def cut_names(*words: str) -> list[str]:
    """Return the names that a command has, and its help does not show whole."""
    command = TREE
    for word in words:
        command = command.commands[word]
    text = helped(*words)
    visible = [o for o in command.params if not o.hidden and o.param_type_name == "option"]
    names = [option.opts[0] for option in visible]
    names += [n for n, inner in getattr(command, "commands", {}).items() if not inner.hidden]
    return [n for n in names if not re.search(rf"(^|[\s│]){n}([\s,/]|$)", text, re.MULTILINE)]


def test_a_screen_of_commands_stands_in_five_panels(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert list(PANELS) == ["Run", "Look", "Data", "Measure", "Maintain"]
    shown = [command for command in TREE.commands.values() if not command.hidden]
    assert {command.rich_help_panel for command in shown} == set(PANELS)
    text = helped()
    for panel, commands in PANELS.items():
        inside = text.partition(f"─ {panel} ")[2].partition("╰")[0].splitlines()[1:]
        assert [line.split()[1] for line in inside] == list(commands), "a line for each"
    assert len(text.splitlines()) <= 70


@pytest.mark.parametrize("width", [80, 40])
def test_no_help_cuts_a_name(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    every = ["", *LEAVES, *(n for n, c in TREE.commands.items() if hasattr(c, "commands"))]
    assert {name: cut for name in every if (cut := cut_names(*name.split()))} == {}


@pytest.mark.parametrize(("name", "command"), LEAVES.items(), ids=LEAVES)
def test_help_is_a_sentence_and_no_option_goes_without(name, command):
    first = command.help.partition("\n")[0]
    assert re.fullmatch(r"[A-Z].*\.", first), first
    assert len(first) <= 60
    told = [p.help for p in command.params if not getattr(p, "hidden", False)]
    assert [text for text in told if not (text and re.match(r"[A-Z/`]", text))] == [], name
    assert [text for text in told if not text.endswith(".")] == []
    assert not re.search(r"\bcan not\b", " ".join([command.help, *told]))


def test_one_option_has_one_meaning_over_all_commands():
    helps: dict[str, set[str]] = defaultdict(set)
    for _, option in OPTIONS:
        helps[option.opts[0]].add(option.help)
    several = {name for name, told in helps.items() if len(told) > 1}
    assert several == set(MEANINGS), "each has its words, and none is idle"
    for name in several:
        assert [text for text in helps[name] if not text.startswith(MEANINGS[name])] == [], name


def test_one_meaning_has_one_option_over_all_commands():
    names: dict[str, set[str]] = defaultdict(set)
    for _, option in OPTIONS:
        names[MEANINGS.get(option.opts[0], option.help)].add(option.opts[0])
    assert [found for found in names.values() if len(found) > 1] == []
    for start in MEANINGS.values():
        others = [o.opts[0] for _, o in OPTIONS if o.help.startswith(start)]
        assert len(set(others)) == 1, start


def test_a_run_can_be_left_out_of_each_command_that_acts_on_one():
    required = [
        name
        for name, command in LEAVES.items()
        for argument in command.params
        if argument.param_type_name == "argument" and argument.metavar == "RUN"
        if argument.required
    ]
    assert required == []


def test_a_command_without_a_run_takes_the_latest_and_says_which(tmp_path, made_lake):
    for words in (["lake", "gc", "--dry-run"], ["pause"], ["ctl", "get"], ["lake", "verify"]):
        told = CliRunner().invoke(app, [*words, "--lake", str(made_lake)])
        assert told.stderr.splitlines()[0] == "run told, the latest", words
    absent = CliRunner().invoke(app, ["stop", "--lake", str(tmp_path)])
    assert (absent.exit_code, "there is no run in" in absent.stderr) == (Exit.BAD_INPUT, True)


def test_words_before_a_table_or_an_action_are_the_run(made_lake, tmp_path):
    lake = ("--lake", str(made_lake))
    for number, words in enumerate((["told", "prompts"], ["prompts"])):
        out = tmp_path / str(number)
        told = CliRunner().invoke(app, ["export", *words, "--as", "jsonl", "-o", str(out), *lake])
        assert told.exit_code == Exit.DONE, told.output
        assert (out / "data.jsonl").exists() or list(out.iterdir())
    many = CliRunner().invoke(app, ["export", "a", "b", "c", "--as", "jsonl", "-o", "x", *lake])
    assert many.exit_code == Exit.BAD_INPUT
    unsaid = CliRunner().invoke(app, ["ctl", "told", *lake])
    assert "say what to do" in unsaid.stderr
    absent = CliRunner().invoke(app, ["ctl", "other", "get", *lake])
    assert "there is no run 'other'" in absent.stderr


def test_where_a_command_stands_is_said():
    groups = [(n, c) for commands in PANELS.values() for n, c in commands.items()]
    for group, command in groups:
        if not isinstance(command, CommandGroup):
            continue
        for word in set(command.commands) - set(TREE.commands):
            told = CliRunner(env={"COLUMNS": "120"}).invoke(app, [word])
            assert told.exit_code == Exit.BAD_INPUT
            assert f"`lpfloop {group} {word}`" in told.stderr
