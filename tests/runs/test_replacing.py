"""An output may replace an earlier export only, regardless of its path."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner
from world import copied

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.outputs import MARK, TargetError, output_file, output_folder

RUN = "given"
ROWS = [{"id": "p1", "prompt": "2 + 3?"}, {"id": "p2", "prompt": "2 + 4?"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a lake of one run in it."""
    folder = tmp_path_factory.mktemp("made") / "work"
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    told = call("import", folder / "rows.jsonl", "--run", RUN, "--lake", folder / "lake")
    assert told.exit_code == 0, told.stderr
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A copy of the folder to work in."""
    folder = copied(made, tmp_path / "work")
    monkeypatch.chdir(folder)
    return folder


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def export(target, *more):
    return call("export", RUN, "prompts", "--as", "jsonl", "-o", target, *more)


def everything(folder):
    """Return the names, bytes and modes of all files in a folder; links count as links."""
    found = {}
    for path in sorted(folder.rglob("*")):
        told = path.lstat()
        holds = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        # SQLite's readers write the index of its write-ahead log.
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


def test_export_stays_without_force(place):
    assert export("out").exit_code == 0
    before = everything(place)
    told = export("out")
    assert told.exit_code == Exit.BAD_INPUT
    assert "add --force" in told.stderr
    assert everything(place) == before
    told = call("export", RUN, "prompts", "--as", "csv", "-o", "out", "--force")
    assert told.exit_code == 0, told.stderr
    assert {path.name for path in Path("out").iterdir()} == {"README.md", "train.csv", MARK}


REFUSED = (
    ("lake", "is inside a lake"),
    (f"lake/runs/{RUN}", "is inside a lake"),
    ("copy", "is inside a lake"),
    ("to-lake", "is inside a lake"),
    (".", "is the current folder"),
    ("..", "is the current folder"),
    ("precious", "was not written by lpfloop"),
    ("holds-a-lake", "was not written by lpfloop"),
    ("to-precious", "was not written by lpfloop"),
    ("rows.jsonl", "is not a folder"),
)


def test_nothing_else_is_replaced(place, subtests):
    (place / "precious" / "sub").mkdir(parents=True)
    (place / "precious" / "thesis.tex").write_text("years of work")
    (place / "holds-a-lake").mkdir()
    shutil.copytree("lake", place / "holds-a-lake" / "lake")
    shutil.copytree(f"lake/runs/{RUN}", "copy")
    for name, to in (("to-lake", "lake"), ("to-precious", "precious")):
        Path(name).symlink_to(to)
    for target, said in REFUSED:
        with subtests.test(target=target):
            refused(target, place, said)


def test_export_with_foreign_files_stays(place, subtests):
    for added in ("sub/notes.txt", "empty/", "link"):
        with subtests.test(added=added):
            shutil.rmtree("out", ignore_errors=True)
            assert export("out").exit_code == 0
            path = Path("out", added)
            path.parent.mkdir(exist_ok=True)
            if added.endswith("/"):
                path.mkdir()
            elif added == "link":
                path.symlink_to("../rows.jsonl")
            else:
                path.write_text("mine")
            refused("out", place, f"holds {added.rstrip('/')}")


def write(target, text, *, meanwhile=None, force=False):
    """Write a folder with one file, while somebody else puts another folder in that place."""
    with output_folder(target, force=force) as draft:
        (draft / "a.txt").write_text(text)
        if meanwhile is not None:
            target.mkdir(exist_ok=True)
            (target / meanwhile).write_text("mine")


def test_file_added_meanwhile_stays(tmp_path):
    target = tmp_path / "out"
    write(target, "1")
    with pytest.raises(TargetError, match=r"holds mine\.txt"):
        write(target, "2", meanwhile="mine.txt", force=True)
    left = {path.name: path.read_text() for path in target.glob("*.txt")}
    assert left == {"a.txt": "1", "mine.txt": "mine"}
    assert list(tmp_path.iterdir()) == [target]


def test_outputs_are_private(place):
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
