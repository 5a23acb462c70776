"""A journal of any size is opened, hashed and backed up piece by piece, and changes few pages."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lpfloop.stores import journal_held, journal_pages
from lpfloop.stores.journal import Done, Journal
from lpfloop.stores.journal_backups import back_up
from lpfloop.stores.journal_log import Log
from lpfloop.stores.journal_opening import blocks_of
from lpfloop.stores.journal_pages import JOURNAL, PAGES, PageHashes
from lpfloop.stores.sealed import PartFile

UNITS = 4000
GROUP = 64


def key_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def filled(folder: Path, stages: int = 3) -> Journal:
    """Return a journal of finished stages, and one that is planned."""
    journal = Journal.create(folder, {})
    for stage in range(stages):
        commit(journal, stage, UNITS)
    plan(journal, stages)
    return journal


def plan(journal: Journal, stage: int) -> None:
    keys = [key_of(stage, number) for number in range(UNITS)]
    journal.plan(1, f"stage-{stage}", key_of(stage), lambda: keys)


def commit(journal: Journal, stage: int, count: int) -> None:
    plan(journal, stage)
    owed = journal.owed(1, f"stage-{stage}")[:count]
    for first in range(0, count, GROUP):
        journal.commit([done(unit.key) for unit in owed[first : first + GROUP]])


def done(key: str) -> Done:
    part = PartFile(sha256=key_of("part", key), rows=1, size=1)
    return Done(unit=key, parts={"candidates": part}, telemetry={"rows": 1})


def image(folder: Path) -> bytes:
    """Return what SQLite says the journal is."""
    with closing(sqlite3.connect(f"file:{folder / JOURNAL}?mode=ro", uri=True)) as database:
        return database.serialize()


@pytest.mark.parametrize("pages", [1, 3, 1024])
def test_a_journal_is_read_in_blocks_as_sqlite_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    monkeypatch.setattr(journal_pages, "BLOCK", pages * 4096)
    with closing(filled(tmp_path / "run")) as journal:
        assert Log.read(journal.folder / JOURNAL).pages, "some pages lie in the log alone"
        whole = image(journal.folder)
        assert b"".join(blocks_of(journal.folder)) == whole
        back_up(journal)
        (backup,) = (journal.folder / "backups").iterdir()
        assert backup.read_bytes() == whole
        assert hashlib.sha256(whole).hexdigest() in backup.name
    hashes = PageHashes.read(tmp_path / "run")
    assert hashes is not None
    assert hashes.hashes == PageHashes.of((tmp_path / "run" / JOURNAL).read_bytes()).hashes


def test_a_journal_need_not_fit_into_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SQLite refuses an image above 2 GiB; here it may make none at all.
    filled(tmp_path / "run").close()

    class Unserializable(sqlite3.Connection):
        def serialize(self, **_: object) -> bytes:
            raise sqlite3.OperationalError("unable to serialize 'main'")

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Unserializable)
    )
    with closing(Journal(tmp_path / "run")) as journal:
        journal.record("seen", {})
        back_up(journal)
    assert sum(1 for _ in (tmp_path / "run" / "backups").iterdir()) == 1


def test_units_that_are_committed_together_lie_together(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "run")) as journal:
        for unit in journal.owed(1, "stage-3")[:GROUP]:
            journal.record("before", unit.key)
        with closing(sqlite3.connect(journal.folder / JOURNAL)) as database:
            ((size,),) = database.execute("PRAGMA page_count").fetchall()
        before = Log.read(journal.folder / JOURNAL).whole
        journal.commit([done(unit.key) for unit in journal.owed(1, "stage-3")[:GROUP]])
        frames = (Log.read(journal.folder / JOURNAL).whole - before) // (4096 + 24)
    # Of a unit, only its part's hash lies elsewhere: in the index of the files.
    assert frames < 2 * GROUP < size


def test_hashes_take_no_more_writing_than_the_log_that_they_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_held, "LOG_BYTES", 1)
    with closing(filled(tmp_path / "run", stages=1)) as journal:
        pages, log = (tmp_path / "run" / name for name in (PAGES, f"{JOURNAL}-wal"))
        written, logged, seen = 0, 0, pages.stat().st_ino
        for number in range(40):
            journal.record("small", {"number": number})
            if pages.stat().st_ino != seen:
                written, seen = written + pages.stat().st_size, pages.stat().st_ino
            logged = max(logged, log.stat().st_size)
    assert 0 < written <= 40 * logged / 2
    assert logged > pages.stat().st_size
