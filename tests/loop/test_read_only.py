"""A lake can be read where nothing may be written: a read-only disk, an archive, another's."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from crashing import (
    RUN,
    copied,
    finished_and_killed,
    quick_folder,
    small_config,
    write_prompts,
)

from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_pages import JOURNAL
from lpfloop.stores.lake import run_folder

LOG, INDEX = f"{JOURNAL}-wal", f"{JOURNAL}-shm"
CODE = """
import json, sys, tempfile
from pathlib import Path
from typer.testing import CliRunner
import lpfloop
from lpfloop.loop.cli.app import app

lake, commands = sys.argv[1], json.loads(sys.argv[2])
told = []
for command in commands:
    done = CliRunner().invoke(app, [*command, "--lake", lake])
    told.append([done.exit_code, done.stdout, done.stderr])
with lpfloop.open("a", lake=lake) as run:
    told.append([run.candidates().collect().height, run.pairs().collect().height])
left = list(Path(tempfile.gettempdir()).glob("lpfloop-journal-*"))
print(json.dumps([told, len(left)]))
"""
BOUND = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Lakes:
    """A lake with a finished run, and one whose run was killed."""

    finished: Path
    killed: Path


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        config = small_config(write_prompts(folder))
        finished, killed = finished_and_killed(folder, config)
        yield Lakes(finished=finished, killed=killed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What each command gave in a read-only lake, and how many rows Python read."""

    commands: list[tuple[int, str, str]]
    rows: list[int]
    left: int


def in_read_only(lake: Path, commands: list[list[str]], temporary: Path) -> Told:
    """Run commands on a lake that cannot be written to, in a process of its own."""
    child = [sys.executable, "-c", CODE, str(lake), json.dumps(commands)]
    if os.geteuid() == 0:
        # Root may write whatever the modes say, but not to a disk that is mounted read-only.
        tried = ["unshare", "--mount", "sh", "-c", BOUND, str(lake)]
        there = shutil.which("unshare") is not None
        if not there or subprocess.run([*tried, "true"], check=False).returncode:
            pytest.skip("this machine lets root mount nothing, so no folder of it is read-only")
        child = [*tried, *child]
    else:
        for path in (lake, *lake.rglob("*")):
            path.chmod(0o500 if path.is_dir() else 0o400)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(child, capture_output=True, text=True, check=True, env=environment)
    (*told, rows), left = json.loads(done.stdout.splitlines()[-1])
    return Told(commands=[tuple(one) for one in told], rows=rows, left=left)


def archived(lake: Path, target: Path, *leaving: str) -> Path:
    """Copy a lake as an archive would, without some of the journal's files."""
    copy = copied(lake, target)
    for name in leaving:
        (run_folder(copy, RUN) / name).unlink(missing_ok=True)
    return copy


@pytest.mark.parametrize(
    "left_out",
    [(LOG, INDEX), (INDEX,), ()],
    ids=["archived", "without its index", "as it was left"],
)
def test_a_finished_run_can_be_read(lakes: Lakes, tmp_path: Path, left_out):
    lake = archived(lakes.finished, tmp_path / "lake", *left_out)
    out = tmp_path / "elsewhere"
    reading = [
        ["lake", "digest", RUN],
        ["status", RUN],
        ["lake", "verify", RUN, "--deep"],
        ["candidates", RUN],
        ["pairs", RUN, "--json"],
        ["sql", "select count(*) as n from candidates"],
        ["export", RUN, "pairs", "--as", "trl-dpo", "-o", str(out)],
    ]
    told = in_read_only(lake, reading, tmp_path)
    assert [code for code, _, _ in told.commands] == [0] * len(reading), told.commands
    assert told.commands[0][1].strip() == run_digest(run_folder(lakes.finished, RUN))
    assert json.loads(told.commands[5][1]) == {"n": told.rows[0]}
    assert (out / "train.parquet").exists()
    assert told.rows[1] == len(json.loads(told.commands[4][1])) > 0


def test_a_killed_run_can_be_read_with_all_that_its_log_holds(lakes: Lakes, tmp_path: Path):
    lake = archived(lakes.killed, tmp_path / "lake", INDEX)
    told = in_read_only(lake, [["lake", "digest", RUN]], tmp_path)
    assert (run_folder(lake, RUN) / LOG).stat().st_size > 0
    assert not (run_folder(lake, RUN) / INDEX).exists(), "it was read-only"
    assert told.commands[0][1].strip() == run_digest(run_folder(lakes.killed, RUN))
    assert told.left == 0


def test_what_would_write_says_so_in_one_sentence(lakes: Lakes, tmp_path: Path):
    lake = archived(lakes.finished, tmp_path / "lake", LOG, INDEX)
    kept = [["lake", name, RUN] for name in ("repair", "compact", "gc", "reparse")]
    writing = [["resume", RUN], *kept]
    for code, out, said in in_read_only(lake, writing, tmp_path).commands:
        assert (code, out) == (2, "")
        (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
        assert line.startswith(f"error: {run_folder(lake, RUN)}")
        assert "cannot be written" in line
        assert "Traceback" not in said
