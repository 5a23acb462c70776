"""Every table in every width: no line too long, no heading cut, nothing left out in silence."""

import re

import pytest
from told import told_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.data.telling import sentence_lines

WIDTHS = (40, 60, 80, 120, 200)
ENOUGH = 2000
LISTS = (
    "candidates told",
    "candidates told --sort -reward",
    "critiques told",
    "grades told",
    "pairs told",
    "failures told",
    "failures told --by aspect",
    "steps told",
    "alarms told",
    "lake derived told",
    "eval facts told",
    "sql 'select * from candidates'",
    "sql 'select * from pairs'",
    "sql",
)
PAGES = ("status told", "compare told", "diff told --from 0 --to 1", "critic-check told")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LEFT_OUT = re.compile(r"left out at \d+ columns: (.*?); --json has all")
TERMINAL = {"TTY_COMPATIBLE": "1", "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("widths")
    told_run(folder)
    return folder


def shown(lake, command, width):
    """Return what a terminal of this width shows."""
    words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", command)]
    form = ["--format", "table"] if words[0] != "diff" else []
    told = CliRunner().invoke(
        app, [*words, *form, "--lake", str(lake)], env={**TERMINAL, "COLUMNS": str(width)}
    )
    assert told.exit_code == 0, told.output
    return ANSI.sub("", told.stdout)


def left_out(text):
    """Return the names of the columns that are left out."""
    found = LEFT_OUT.search(" ".join(text.split()))
    return [] if found is None else found[1].split(", ")


def heads(text):
    """Return the words of each table's headings, which stand above its rule."""
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if set(line.strip()) == {"─"}]
    found = []
    for rule in rules:
        start = rule
        while start and lines[start - 1].strip():
            start -= 1
        found.append(" ".join(lines[start:rule]).split())
    return found


@pytest.mark.parametrize("command", LISTS)
def test_a_list_keeps_its_headings_whole_and_names_what_it_leaves_out(lake, command):
    (every,) = heads(shown(lake, command, ENOUGH))
    for width in WIDTHS:
        text = shown(lake, command, width)
        assert all(len(line) <= width for line in text.splitlines())
        (head,) = heads(text)
        for name in every:
            pieces = re.findall(r"[^_]+_?", name)
            there = all(any(piece in word for word in head) for piece in pieces)
            assert there or name in left_out(text), f"{name} is not shown at {width}"


@pytest.mark.parametrize("command", PAGES)
def test_a_page_keeps_within_the_terminal(lake, command):
    for width in WIDTHS:
        text = shown(lake, command, width)
        long = [line for line in text.splitlines() if len(line) > width]
        # A command, and a path, is not broken, so that it can be copied.
        assert all(line.count("`") >= 2 or " " not in line.strip() for line in long), long
        assert heads(text)
        assert not any("…" in word for head in heads(text) for word in head)


def test_a_sentence_is_broken_between_words_and_never_in_a_command():
    text = "  it is paused and waits: `lpfloop resume mine --lake there` continues it, if you want"
    lines = sentence_lines(text, 40)
    assert all(len(line) <= 40 for line in lines)
    assert any("`lpfloop resume mine --lake there`" in line for line in lines)
    assert all(line.startswith("  ") for line in lines)
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert sentence_lines("a `one two three four` b", 10) == ["a", "`one two three four`", "b"]


def test_a_pipe_gets_each_sentence_on_one_line(lake):
    told = CliRunner().invoke(
        app, ["status", "told", "--lake", str(lake)], env={"COLUMNS": "40", "NO_COLOR": "1"}
    )
    assert max(len(line) for line in told.stdout.splitlines()) > 80
