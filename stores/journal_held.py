"""Holding a run's journal: one process takes it for life, and changes it by whole transactions.

A file lock keeps others out; an epoch in the journal is a fence against a holder that was suspended
and overtaken.
"""

import os
import sqlite3
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from .durable import make_folder, publish_file
from .failpoints import reach
from .journal_reader import JOURNAL, Reader, read_cost
from .lock import acquire, admit_readers, release
from .migrations import create_tables, migrate
from .objects import require_unused
from .schemas import SCHEMA_VERSION


class FencedError(RuntimeError):
    """This process was overtaken: a later holder of the run has begun to write."""


class Held(Reader):
    """A journal that this process holds; its methods may be called from several threads.

    `publishing` is held from the sealing of parts until the journal refers to them, and while parts
    that the journal does not refer to are removed.
    """

    def __init__(self, folder: Path) -> None:
        self.publishing = threading.Lock()
        self._lock = acquire(folder)
        try:
            super().__init__(folder, writable=True)
            self._take_over()
        except BaseException:
            release(self._lock)
            raise

    def _take_over(self) -> None:
        try:
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            admit_readers(self.folder)
            self.migrated = migrate(self._db)
            self._epoch = self._begin_epoch()
            self._abandon_reservations()
        except BaseException:
            # An open transaction would lock out the next process.
            self._db.close()
            raise

    @classmethod
    def create(cls, folder: Path, meta: Mapping[str, str]) -> Self:
        """Make the journal of a new run, with facts that never change, and open it."""
        require_unused(folder)
        make_folder(folder)
        lock = acquire(folder)
        try:
            reach("journal.create.before")
            for left in folder.glob(f".tmp-*-{JOURNAL}*"):
                left.unlink()
            draft = folder / f".tmp-{os.getpid()}-{JOURNAL}"
            db = sqlite3.connect(draft, isolation_level=None)
            db.execute("PRAGMA synchronous = FULL")
            create_tables(db)
            facts = {"epoch": "0", "schema": str(SCHEMA_VERSION), **meta}
            db.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
            db.execute("PRAGMA journal_mode = WAL")
            db.close()
            admit_readers(folder)
            publish_file(draft, folder / JOURNAL)
            reach("journal.create.after")
        finally:
            release(lock)
        return cls(folder)

    def close(self) -> None:
        """Close the connection and release the run's lock."""
        with self._mutex:
            super().close()
        release(self._lock)

    def _begin_epoch(self) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
        epoch = int(self.meta("epoch") or 0)
        reach("journal.epoch.before")
        self._db.execute("COMMIT")
        reach("journal.epoch.after")
        return epoch

    def _abandon_reservations(self) -> None:
        """Count what a dead process had reserved as spent: its requests may have been paid for."""
        left = self._query("SELECT cost FROM reservations")
        if not left:
            return
        with self._transaction("abandon"):
            self._db.execute("DELETE FROM reservations")
            self._abandon(cost for (cost,) in left)

    def _abandon(self, costs: Iterable[str]) -> None:
        """Add costs that no committed unit accounts for to what was spent."""
        before = read_cost(self.meta("abandoned") or "{}")
        total = sum(map(read_cost, costs), before)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('abandoned', ?)", (total.as_json(),))

    def _check_epoch(self) -> None:
        if int(self.meta("epoch") or 0) != self._epoch:
            raise FencedError(f"another process has taken over the run at {self.folder}")

    @contextmanager
    def _transaction(self, name: str) -> Generator[None]:
        """Run the body as one transaction; `name` names the failpoints around the COMMIT."""
        with self._mutex:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._check_epoch()
                yield
                reach(f"journal.{name}.before")
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            reach(f"journal.{name}.after")
