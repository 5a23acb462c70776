"""Packing and collecting in a bucket lose nothing, wherever they are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from s3 import bad_way
from small_units import make

from lpfloop.stores import packing
from lpfloop.stores.address import ADDRESS, STATE, lake_folder
from lpfloop.stores.adoption import adopt
from lpfloop.stores.bucket import OutOfReachError
from lpfloop.stores.digest import run_digest
from lpfloop.stores.durable import make_folder
from lpfloop.stores.failpoints import VARIABLE, armed
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.heads import AdoptedError
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import lose, run_folder
from lpfloop.stores.objects import objects_of
from lpfloop.stores.packing import pack_all
from lpfloop.stores.packs import file_path

pytestmark = pytest.mark.crash

COUNTS = [3 + chunk % 4 for chunk in range(12)]
PACKING = """
import sys
from pathlib import Path
from lpfloop.stores.journal import Journal
from lpfloop.stores.packing import pack_all
journal = Journal(Path(sys.argv[1]))
pack_all(journal)
journal.close()
"""
COLLECTING = """
import sys
from pathlib import Path
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.journal import Journal
journal = Journal(Path(sys.argv[1]))
collect(journal, garbage(journal))
journal.close()
"""
PACKING_KILLED_AT = (
    "lake.pack",
    "object.put.before",
    "object.put.after",
    "journal.pack.before",
    "journal.pack.after",
    "lake.discard",
    "object.delete.before",
    "object.delete.after#3",
)
COLLECTING_KILLED_AT = ("object.delete.before", "object.delete.after", "object.delete.after#2")


@pytest.fixture
def run(bucket: str, tmp_path: Path) -> Path:
    lake = make_folder(tmp_path / "lake")
    (lake / ADDRESS).write_text(f"s3://{bucket}/lake\n")
    make(run_folder(lake, "a"), COUNTS).close()
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
    return {path for path in found if path.parent.parent.name in ("parts", "packs")}


def rows_known(run: Path) -> set[Path]:
    with closing(Reader(run)) as journal:
        return {file_path(run, file) for file in journal.files()}


def test_packing_that_is_killed_anywhere_loses_nothing_and_is_finished_later(run):
    digest = run_digest(run)
    for failpoint in PACKING_KILLED_AT:
        killed(PACKING, run, failpoint)
        require_whole(run, digest)
    with closing(Journal(run)) as journal:
        pack_all(journal)
        collect(journal, garbage(journal))
    require_whole(run, digest)
    assert rows_there(run) == rows_known(run)
    assert {path.parent.parent.name for path in rows_there(run)} == {"packs"}


def test_collecting_that_is_killed_anywhere_removes_nothing_that_counts(run):
    digest = run_digest(run)
    for table in ("candidates", "critiques", "pairs", "rewards"):
        name = f"{run.name}/parts/{table}/{'0' * 64}.parquet"
        objects_of(run)._bucket.put(f"runs/{name}", b"sealed, and not committed")
    for failpoint in COLLECTING_KILLED_AT:
        killed(COLLECTING, run, failpoint)
        require_whole(run, digest)
    with closing(Journal(run)) as journal:
        assert collect(journal, garbage(journal))
    require_whole(run, digest)
    assert rows_there(run) == rows_known(run)


def test_a_machine_that_was_overtaken_removes_nothing_of_what_the_next_one_made(
    bucket, tmp_path, monkeypatch
):
    url = f"s3://{bucket}/lake"
    monkeypatch.setenv(STATE, str(tmp_path / "one"))
    make(run_folder(lake_folder(url), "a"), COUNTS).close()
    one = Journal(run_folder(lake_folder(url), "a"))
    monkeypatch.setenv(STATE, str(tmp_path / "two"))
    run = adopt(lake_folder(url), "a", force=True).folder
    make(run, [count + 4 for count in COUNTS], iteration=2).close()
    digest = run_digest(run)
    unknown = garbage(one)
    assert {piece.path.stem for piece in unknown} & {path.stem for path in rows_known(run)}
    with pytest.raises(AdoptedError, match="was adopted by"):
        collect(one, unknown)
    one.close()
    require_whole(run, digest)


@pytest.fixture
def overtaken(bucket, tmp_path, monkeypatch):
    """Open a run to pack it; return its journal, and what has another machine adopt the run.

    That one does some work on it, of which its digest is kept in a list.
    """
    url = f"s3://{bucket}/lake"
    monkeypatch.setenv(STATE, str(tmp_path / "one"))
    make(run_folder(lake_folder(url), "a"), COUNTS).close()
    one = Journal(run_folder(lake_folder(url), "a"))
    adopted = list[tuple[Path, str]]()

    def take(work: Callable[[Path], None]) -> None:
        monkeypatch.setenv(STATE, str(tmp_path / "two"))
        run = adopt(lake_folder(url), "a", force=True).folder
        work(run)
        adopted.append((run, run_digest(run)))
        monkeypatch.setenv(STATE, str(tmp_path / "one"))

    yield one, take, adopted
    one.close()


def make_others(run: Path) -> None:
    make(run, [count + 4 for count in COUNTS], iteration=2).close()


def make_again(run: Path) -> None:
    """Make all units again, as if their packs were damaged: in files as those that were packed."""
    with closing(Journal(run)) as journal:
        for unit in journal.keys(1, "sample"):
            journal.lose(unit)
    make(run, COUNTS).close()


@pytest.mark.parametrize(
    ("moment", "work"),
    [("lake.discard#1", make_others), ("object.delete.after#1", make_again)],
)
def test_a_machine_that_is_overtaken_while_it_discards_removes_nothing_of_the_next_one(
    moment, work, overtaken, monkeypatch
):
    monkeypatch.setattr(packing, "FEW", 1)
    one, take, adopted = overtaken
    with armed({moment: lambda _: take(work)}), pytest.raises(AdoptedError, match="was adopted"):
        pack_all(one)
    ((run, digest),) = adopted
    require_whole(run, digest)


def test_a_machine_that_does_not_reach_the_bucket_removes_nothing(
    overtaken, s3_server, monkeypatch
):
    one, _, _ = overtaken
    monkeypatch.setattr("lpfloop.stores.conditional_write.TRIES", 1)
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)

        def part(_: str) -> None:
            way.faults = lambda method, path: (
                "503" if (method, "/heads/" in path) == ("HEAD", True) else None
            )

        with armed({"lake.discard": part}), pytest.raises(OutOfReachError):
            pack_all(one)
        way.faults = lambda *_: None
        assert not [path for method, path in way.seen if method == "DELETE" and "/parts/" in path]
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)


def test_packing_leaves_what_it_does_not_know_of_to_the_collection_of_garbage(run):
    stranger = run / "parts" / "candidates" / f"{'0' * 64}.parquet"
    objects_of(run)._bucket.put(stranger.relative_to(run.parent.parent).as_posix(), b"a stranger")
    with closing(Journal(run)) as journal:
        pack_all(journal)
        assert {path for path in rows_there(run) if path.parent.parent.name == "parts"} == {
            stranger
        }
        collect(journal, garbage(journal))
    assert rows_there(run) == rows_known(run)


def test_a_machine_that_was_overtaken_sets_nothing_aside(overtaken):
    one, take, adopted = overtaken
    take(make_others)
    ((run, digest),) = adopted
    part = one.parts(table="candidates")[0]
    path = one.folder / "parts" / "candidates" / f"{part.sha256}.parquet"
    with pytest.raises(AdoptedError):
        lose(one, part.unit, path, "it seemed damaged")
    require_whole(run, digest)
