"""Sealing and collecting in a bucket lose nothing, even if killed at any point."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from lakes import make_units

from lpfloop.stores import garbage as garbage_module
from lpfloop.stores.address import ADDRESS, STATE, lake_folder
from lpfloop.stores.digest import run_digest
from lpfloop.stores.durable import make_folder
from lpfloop.stores.failpoints import VARIABLE, arm
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Reader, file_path
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.objects import objects_of
from lpfloop.stores.run_lease import TakenOverError
from lpfloop.stores.takeover import take_over

COUNTS = [3 + chunk % 4 for chunk in range(9)]
SEALING = """
import sys
from pathlib import Path
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter
RunWriter(Journal(Path(sys.argv[1]))).close()
"""


@pytest.fixture
def run(bucket: str, tmp_path: Path) -> Path:
    lake = make_folder(tmp_path / "lake")
    (lake / ADDRESS).write_text(f"s3://{bucket}/lake\n")
    with arm({"lake.seal": "enospc"}):
        make_units(run_folder(lake, "a"), COUNTS).close()
    return run_folder(lake, "a")


def killed(code: str, run: Path, failpoint: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", code, str(run)],
        env={**os.environ, VARIABLE: f"{failpoint}:kill"},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, failpoint


def require_whole(run: Path, digest: str) -> None:
    assert run_digest(run) == digest
    with closing(Reader(run)) as journal:
        assert damages(journal, deep=True) == []


def rows_there(run: Path) -> set[Path]:
    found = objects_of(run).sizes(run)
    return {path for path in found if path.parent.parent.name == "files"}


def rows_known(run: Path) -> set[Path]:
    with closing(Reader(run)) as journal:
        return {file_path(run, f.table, f.sha256) for f in journal.files() if f.sealed}


def test_killed_sealing_loses_nothing(run):
    digest = run_digest(run)
    for failpoint in ("object.put.after#2", "journal.seal.before", "journal.seal.after#2"):
        killed(SEALING, run, failpoint)
        require_whole(run, digest)
    RunWriter(Journal(run)).close()
    stranger = run / "files" / "candidates" / f"{'0' * 64}.parquet"
    objects_of(run)._bucket.put(stranger.relative_to(run.parent.parent).as_posix(), b"a stranger")
    with closing(Journal(run)) as journal:
        collect(journal, garbage(journal))
    require_whole(run, digest)
    assert rows_there(run) == rows_known(run) != set()


def test_overtaken_while_discarding(bucket, tmp_path, environ, monkeypatch):
    """Another machine takes over, and rewrites units into files like the removed ones."""
    monkeypatch.setattr(garbage_module, "FEW", 1)
    lake, taken_over = f"s3://{bucket}/lake", list[tuple[Path, str]]()
    environ[STATE] = str(tmp_path / "one")
    make_units(run_folder(lake_folder(lake), "a"), COUNTS).close()

    def take(_: str) -> None:
        environ[STATE] = str(tmp_path / "two")
        run = take_over(lake_folder(lake), "a", force=True).folder
        make_units(run, COUNTS).close()
        taken_over.append((run, run_digest(run)))
        environ[STATE] = str(tmp_path / "one")

    with closing(Journal(run_folder(lake_folder(lake), "a"))) as one:
        one.forget(1, "sample")
        with (
            arm({"object.delete.after#1": take}),
            pytest.raises(TakenOverError, match="was taken over"),
        ):
            collect(one, garbage(one))
    ((run, digest),) = taken_over
    require_whole(run, digest)
