"""A journal of any size is opened, hashed and backed up piece by piece, and changes few pages."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lpfloop.stores import journal_pages
from lpfloop.stores.journal import Done, Journal
from lpfloop.stores.journal_backups import back_up
from lpfloop.stores.journal_log import Log
from lpfloop.stores.journal_opening import blocks_of
from lpfloop.stores.journal_pages import JOURNAL, PageHashes
from lpfloop.stores.sealed import PartFile

UNITS = 1000
GROUP = 64


def key_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def filled(folder: Path) -> Journal:
    """Return a journal of three finished stages, and one that is planned."""
    journal = Journal.create(folder, {})
    for stage in range(3):
        plan(journal, stage)
        owed = journal.owed(1, f"stage-{stage}")
        for first in range(0, UNITS, GROUP):
            journal.commit([done(unit.key) for unit in owed[first : first + GROUP]])
    plan(journal, 3)
    return journal


def plan(journal: Journal, stage: int) -> None:
    keys = [key_of(stage, number) for number in range(UNITS)]
    journal.plan(1, f"stage-{stage}", key_of(stage), lambda: keys)


def done(key: str) -> Done:
    part = PartFile(sha256=key_of("part", key), rows=1, size=1)
    return Done(unit=key, parts={"candidates": part}, telemetry={"rows": 1})


def test_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal_pages, "BLOCK", 4096)
    with closing(filled(tmp_path / "run")) as journal:
        assert Log.read(journal.folder / JOURNAL).pages, "some pages lie in the log alone"
        with closing(sqlite3.connect(f"file:{journal.folder / JOURNAL}?mode=ro", uri=True)) as db:
            whole = db.serialize()
        assert b"".join(blocks_of(journal.folder)) == whole
        back_up(journal)
        (backup,) = (journal.folder / "backups").iterdir()
        assert backup.read_bytes() == whole
        assert hashlib.sha256(whole).hexdigest() in backup.name
    hashes = PageHashes.read(tmp_path / "run")
    assert hashes is not None
    assert hashes.hashes == PageHashes.of((tmp_path / "run" / JOURNAL).read_bytes()).hashes
