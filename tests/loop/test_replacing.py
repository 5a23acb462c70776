"""What an output may replace: an earlier export, and nothing else, whatever it is pointed at."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.plots import write_plot
from lpfloop.stores.outputs import output_file, output_folder
from lpfloop.stores.targets import MARK, TargetError

RUN = "given"
ROWS = [{"id": "p1", "prompt": "2 + 3?"}, {"id": "p2", "prompt": "2 + 4?"}]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a lake of one run in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    told = call("import", "rows.jsonl", "--run", RUN)
    assert told.exit_code == 0, told.stderr
    return folder


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def export(target, *more):
    return call("export", RUN, "prompts", "--as", "jsonl", "-o", target, *more)


def everything(folder):
    """Return all that lies in a folder, links as links: names, bytes, modes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        told = path.lstat()
        holds = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        # Readers of SQLite touch its index of the write-ahead log.
        if not path.name.endswith(("-shm", "-wal")):
            found[str(path.relative_to(folder))] = (stat.S_IFMT(told.st_mode), holds)
    return found


def refused(target, place, said):
    before = everything(place.parent)
    told = export(target, "--force")
    assert told.exit_code == Exit.BAD_INPUT, told.output
    assert said in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert everything(place.parent) == before


def test_a_second_export_replaces_the_first(place):
    for form in ("jsonl", "csv"):
        told = call("export", RUN, "prompts", "--as", form, "-o", "out", "--force")
        assert told.exit_code == 0, told.stderr
        assert {path.name for path in Path("out").iterdir()} == {"README.md", f"train.{form}", MARK}
    assert {path.name for path in place.iterdir()} == {"lake", "out", "rows.jsonl"}


def test_without_force_an_export_stays(place):
    assert export("out").exit_code == 0
    before = everything(place)
    told = export("out")
    assert told.exit_code == Exit.BAD_INPUT
    assert "add --force" in told.stderr
    assert everything(place) == before


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("lake", "lies in a lake"),
        ("lake/runs", "lies in a lake"),
        (f"lake/runs/{RUN}", "lies in a lake"),
        (f"lake/runs/{RUN}/parts", "lies in a lake"),
        ("lake/new", "lies in a lake"),
        ("copy", "lies in a lake"),
        ("to-lake", "lies in a lake"),
        (f"to-runs/{RUN}/work", "lies in a lake"),
        (".", "is the current folder"),
        ("..", "is the current folder"),
        ("/", "is the current folder"),
        ("", "is the current folder"),
        ("to-here", "is the current folder"),
        ("precious", "was not written by lpfloop"),
        ("holds-a-lake", "was not written by lpfloop"),
        ("to-precious", "was not written by lpfloop"),
        ("rows.jsonl", "is no folder"),
        ("loop", "cannot be used"),
    ],
)
def test_nothing_else_is_replaced(place, target, said):
    (place / "precious" / "sub").mkdir(parents=True)
    (place / "precious" / "thesis.tex").write_text("years of work")
    (place / "holds-a-lake").mkdir()
    shutil.copytree("lake", place / "holds-a-lake" / "lake")
    shutil.copytree(f"lake/runs/{RUN}", "copy")
    for name, to in (
        ("to-lake", "lake"),
        ("to-runs", "lake/runs"),
        ("to-here", "."),
        ("to-precious", "precious"),
        ("loop", "loop"),
    ):
        Path(name).symlink_to(to)
    refused(target, place, said)


@pytest.mark.parametrize("added", ["notes.txt", "sub/notes.txt", "empty/", "link", ".DS_Store"])
def test_an_export_with_something_else_in_it_stays(place, added):
    assert export("out").exit_code == 0
    path = Path("out", added)
    path.parent.mkdir(exist_ok=True)
    if added.endswith("/"):
        path.mkdir()
    elif added == "link":
        path.symlink_to("../rows.jsonl")
    else:
        path.write_text("mine")
    refused("out", place, f"holds {added.rstrip('/')}, which its export did not write")


def test_a_written_name_that_became_a_link_or_a_lake_stays(place):
    assert export("out").exit_code == 0
    Path("out/train.jsonl").unlink()
    Path("out/train.jsonl").symlink_to("../rows.jsonl")
    refused("out", place, "holds train.jsonl, which its export did not write")


@pytest.mark.parametrize(
    "mark", ["", "[]", "{}", '{"version": 2, "files": []}', '{"version": 1, "files": "all"}']
)
def test_a_mark_that_does_not_read_marks_nothing(place, mark):
    Path("precious").mkdir()
    Path("precious", MARK).write_text(mark)
    refused("precious", place, "was not written by lpfloop")


def test_a_forged_mark_does_not_give_a_journal_away(place):
    Path("held/deep").mkdir(parents=True)
    Path("held/deep/journal.sqlite").write_text("rows")
    files = {"version": 1, "files": ["deep/journal.sqlite"]}
    Path("held", MARK).write_text(json.dumps(files))
    refused("held", place, "holds deep/journal.sqlite")


def test_an_empty_folder_takes_an_export(place):
    Path("out").mkdir()
    assert export("out").exit_code == Exit.BAD_INPUT
    assert export("out", "--force").exit_code == 0


def test_an_export_goes_where_a_link_leads(place):
    Path("scratch").mkdir()
    Path("out").symlink_to("scratch/deep")
    for _ in range(2):
        told = export("out", "--force")
        assert told.exit_code == 0, told.stderr
    assert Path("out").is_symlink()
    assert Path("scratch/deep/train.jsonl").exists()


def write(target, text, *, meanwhile=None, force=False):
    """Write a folder with one file, while somebody else writes another into its place."""
    with output_folder(target, force=force) as draft:
        (draft / "a.txt").write_text(text)
        if meanwhile is not None:
            target.mkdir(exist_ok=True)
            (target / meanwhile).write_text("mine")


def test_what_comes_in_meanwhile_stays(tmp_path):
    target = tmp_path / "out"
    write(target, "1")
    with pytest.raises(TargetError, match=r"holds mine\.txt"):
        write(target, "2", meanwhile="mine.txt", force=True)
    left = {path.name: path.read_text() for path in target.glob("*.txt")}
    assert left == {"a.txt": "1", "mine.txt": "mine"}
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_appears_meanwhile_stays(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(TargetError, match="cannot be made"):
        write(target, "1", meanwhile="mine.txt")
    assert (target / "mine.txt").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (f"lake/runs/{RUN}/journal.sqlite", "lies in a lake"),
        (f"lake/runs/{RUN}/honesty.yaml", "lies in a lake"),
        ("to-journal", "lies in a lake"),
        ("folder", "is no regular file"),
        ("/dev/null", "is no regular file"),
    ],
)
def test_a_file_replaces_only_a_regular_file_outside_of_lakes(place, target, said):
    Path("folder").mkdir()
    Path("to-journal").symlink_to(f"lake/runs/{RUN}/journal.sqlite")
    before = everything(place)
    told = call("config", "principles", "--aspect", "honesty", "--output", target, "--force")
    assert told.exit_code == Exit.BAD_INPUT
    assert said in told.stderr
    assert everything(place) == before


def test_a_file_is_replaced_with_force_only(place):
    out = Path("mine.yaml")
    out.write_text("- my own words\n")
    told = call("config", "principles", "--aspect", "honesty", "--output", out)
    assert told.exit_code == Exit.BAD_INPUT
    assert "add --force" in told.stderr
    assert out.read_text() == "- my own words\n"
    told = call("config", "principles", "--aspect", "honesty", "--output", out, "--force")
    assert told.exit_code == 0
    assert "my own words" not in out.read_text()


def test_a_model_is_not_asked_for_a_file_that_cannot_be_written(place):
    Path("mine.yaml").write_text("")
    asked = ("--writer", "http://127.0.0.1:9/v1", "--count", "2")
    told = call("config", "principles", "--aspect", "honesty", "--output", "mine.yaml", *asked)
    assert "is there already" in told.stderr


def test_a_plot_replaces_with_force_only(tmp_path):
    pytest.importorskip("matplotlib")
    thesis = tmp_path / "thesis.pdf"
    thesis.write_text("years of work")
    with pytest.raises(TargetError, match="add --force"):
        write_plot(thesis, [])
    judged = tmp_path / "judged.json"
    judged.write_text("[]")
    told = call("judge-check", judged, "--plot", thesis)
    assert told.exit_code == Exit.BAD_INPUT
    assert "add --force" in told.stderr
    assert thesis.read_text() == "years of work"


def test_outputs_are_as_private_as_the_lake(place):
    before = os.umask(0)
    try:
        assert export("out/deep").exit_code == 0
        output_file(Path("alone.txt"), b"text", force=False)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in Path("out/deep").iterdir()}
    assert modes == dict.fromkeys(("README.md", "train.jsonl", MARK), 0o600)
    assert Path("out/deep").stat().st_mode & 0o777 == 0o700
    assert Path("alone.txt").stat().st_mode & 0o777 == 0o600
