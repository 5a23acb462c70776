"""lpfloop reads a lake that it cannot write: on a read-only disk, in an archive, another user's."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import RUN, copied, finished_and_killed, quick_folder, small_config, write_prompts

from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_file import JOURNAL
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


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A lake with a finished run, and one whose run was killed."""
    with quick_folder(tmp_path_factory.getbasetemp()) as folder:
        config = small_config(write_prompts(folder))
        yield finished_and_killed(folder, config)


def in_read_only(lake: Path, commands: list[list[str]], temporary: Path):
    """Run commands on a read-only lake; return their output, Python's rows, files left in /tmp."""
    child = [sys.executable, "-c", CODE, str(lake), json.dumps(commands)]
    if os.geteuid() == 0:
        # Root may write regardless of the modes, but not to a read-only mount.
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
    return told, rows, left


def archived(lake: Path, target: Path, *leaving: str) -> Path:
    """Copy a lake like an archive, without some of the journal's files."""
    copy = copied(lake, target)
    for name in leaving:
        (run_folder(copy, RUN) / name).unlink(missing_ok=True)
    return copy


def test_finished_run_can_be_read(lakes, tmp_path: Path):
    """An archive contains none of the log's files."""
    finished, _ = lakes
    lake = archived(finished, tmp_path / "lake", LOG, INDEX)
    out = tmp_path / "elsewhere"
    reading = [
        ["lake", "digest", RUN],
        ["status", RUN],
        ["lake", "verify", RUN, "--deep"],
        ["pairs", RUN, "--json"],
        ["sql", "select count(*) as n from candidates"],
        ["export", RUN, "pairs", "--as", "trl-dpo", "-o", str(out)],
    ]
    writing = [["resume", RUN], ["lake", "repair", RUN], ["lake", "gc", RUN]]
    told, rows, _ = in_read_only(lake, [*reading, *writing], tmp_path)
    read, refused = told[: len(reading)], told[len(reading) :]
    assert [code for code, _, _ in read] == [0] * len(reading), read
    assert read[0][1].strip() == run_digest(run_folder(finished, RUN))
    assert json.loads(read[4][1]) == {"n": rows[0]}
    assert (out / "train.parquet").exists()
    assert rows[1] == len(json.loads(read[3][1])) > 0
    # Each command that writes fails with one sentence.
    for code, out, said in refused:
        assert (code, out) == (2, "")
        assert f"error LPF-108: {run_folder(lake, RUN)}" in said
        assert "Traceback" not in said


def test_killed_run_can_be_read(lakes, tmp_path: Path):
    _, killed = lakes
    lake = archived(killed, tmp_path / "lake", INDEX)
    told, _, left = in_read_only(lake, [["lake", "digest", RUN]], tmp_path)
    assert (run_folder(lake, RUN) / LOG).stat().st_size > 0
    assert not (run_folder(lake, RUN) / INDEX).exists(), "it was read-only"
    assert told[0][1].strip() == run_digest(run_folder(killed, RUN))
    assert left == 0
