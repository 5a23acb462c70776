"""Holding a run's journal: one process takes it for life, and changes it by whole transactions.

A file lock keeps others out; an epoch in the journal is a fence against a holder that was suspended
and overtaken. The journal of a run in a bucket is held under an epoch of the bucket's, too, against
holders on other machines (`heads`); snapshots of it go there.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from .bucket import OutOfReachError
from .durable import TEMPORARY, make_folder, publish_file, sweep
from .failpoints import reach
from .heads import take_headship
from .journal_log import Log
from .journal_opening import blocks_of
from .journal_pages import PageHashes, require_sound
from .journal_reader import JOURNAL, Reader, read_cost
from .journal_snapshots import Snapshots
from .journal_tables import create_tables
from .lock import FencedError, acquire, admit_readers, release
from .objects import require_unused
from .schemas import SCHEMA_VERSION
from .signs_of_life import SignsOfLife

BACKUPS = "backups"
LOG_BYTES = 4 << 20
"""A log that is longer is moved into the journal's file before the next transaction, unless it is
shorter than the hashes of all pages, which are written whole each time."""
CACHE_KIB = 64 << 10

logger = logging.getLogger("lpfloop.store")


class Held(Reader):
    """A journal that this process holds; its methods may be called from several threads.

    `publishing` is held from the sealing of parts until the journal refers to them, and while parts
    that the journal does not refer to are removed. `changed` says that something was committed
    since the journal was opened, or backed up; `revision` counts the transactions. `headship` is
    the epoch under which it is held, if the run lies in a bucket; a thread gives its sign of life.
    `overtaken` is what said that another process has the run now, if anything did. `on_adopted` is
    told, in a thread of the store, that it is on another machine.
    """

    def __init__(self, folder: Path) -> None:
        self.publishing = threading.Lock()
        self.changed = self._unhashed = self._logged = False
        self.revision = 0
        self.overtaken: FencedError | None = None
        self.on_adopted: Callable[[], None] = lambda: None
        self._signs: SignsOfLife | None = None
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
            self._db.execute("PRAGMA wal_autocheckpoint = 0")
            self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
            require_sound(self._db, self.folder, quick=True)
            self.headship = take_headship(self.folder)
            self._snapshots = self.headship and Snapshots(self.folder, self.headship)
            self._signs = self.headship and SignsOfLife(self.headship, self._was_adopted)
            for left in self.folder.glob(f"{TEMPORARY}*"):
                left.unlink()
            sweep(self.folder / BACKUPS)
            admit_readers(self.folder)
            self._pages = self._opened.pages
            self._move_log()
            self._epoch = self._begin_epoch()
            self._abandon_reservations()
        except BaseException:
            if self._signs is not None:
                self._signs.close()
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
        held = cls(folder)
        try:
            held.take_snapshot()  # From now on the run can be adopted.
        except BaseException:
            held.close()
            raise
        return held

    def close(self) -> None:
        """Close the connection and release the run's lock; the bucket gets a last snapshot."""
        self._end_headship()
        with self._mutex:
            # What cannot be moved or noted now is left to the next writer.
            with suppress(OSError, sqlite3.OperationalError, FencedError):
                self._check_epoch()
                self._move_log(closing=True)
            super().close()
        release(self._lock)

    def take_snapshot(self) -> None:
        """Keep the journal as it is now in the run's bucket; nothing for a run in a folder.

        Raises:
            AdoptedError: if another machine has taken the run over; nothing can be committed then.
            OutOfReachError: if the bucket does not answer.
        """
        if self._snapshots is not None:
            with self._fencing():
                self._snapshots.take(self.revision)

    def check_head(self) -> None:
        """Ask the run's bucket whether this process is its head still, unless it does not answer.

        Raises:
            AdoptedError: if another machine has taken the run over; nothing can be committed then.
        """
        with suppress(OutOfReachError):
            self.require_head()

    def require_head(self) -> None:
        """Ask the run's bucket whether this process is its head still; before anything is removed.

        Raises:
            AdoptedError: if another machine has taken the run over; nothing can be committed then.
            OutOfReachError: if the bucket does not answer: the run may be another machine's by now.
        """
        if self.headship is not None:
            with self._fencing():
                self.headship.check()

    @contextmanager
    def _fencing(self) -> Generator[None]:
        try:
            yield
        except FencedError as error:
            self.overtaken = error
            raise

    def _was_adopted(self, error: FencedError) -> None:
        self.overtaken = error
        self.on_adopted()

    def _end_headship(self) -> None:
        """Send what was committed last; then no sign of life follows the one that says so."""
        if self._snapshots is None or self._signs is None or self.headship is None:
            return
        try:
            if self.overtaken is None:
                self._snapshots.take(self.revision, ending=True)
                self._signs.close()
                self.headship.give_sign(ended=True)
        except FencedError:
            return  # Whoever was overtaken has nothing to keep.
        except OSError as error:  # The bucket is away, or there is no room for the draft.
            logger.warning(
                "the bucket has no snapshot of what was committed last (%s): until run %s is "
                "opened again on this machine, another one cannot know of it",
                *(error, self.folder.name),
            )
        finally:
            self._signs.close()

    @contextmanager
    def unchanging(self) -> Generator[Callable[[], Iterator[bytes]]]:
        """Give what yields the journal as the bytes of a database; nothing is committed inside."""
        with self._mutex:
            self._check_epoch()
            yield lambda: blocks_of(self.folder)

    def _move_log(self, *, closing: bool = False) -> None:
        """Move the log's pages into the journal's file, then publish the hashes of its pages.

        Only after that may the next transaction write over the log. Readers of an older state can
        keep pages in the log: then the hashes stay as they are.
        """
        ((busy, frames, moved),) = self._query("PRAGMA wal_checkpoint(PASSIVE)")
        if busy or moved < frames:
            return
        self._unhashed = True
        if self._pages is None:
            self._pages = PageHashes.of_file(self.folder / JOURNAL)
        else:
            self._pages = self._pages.moved(Log.read(self.folder / JOURNAL))
        self._pages = self._pages.write(self.folder, closed=closing)
        self._unhashed = self._logged = False

    def _must_move_log(self) -> bool:
        """Whether hashes are owed for what was moved, or the log has become long since."""
        if self._unhashed or not self._logged:
            return self._unhashed
        hashes = len(self._pages.hashes) if self._pages else 0
        return (self.folder / f"{JOURNAL}-wal").stat().st_size > max(LOG_BYTES, hashes)

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
        if self.overtaken is not None:
            raise self.overtaken
        if int(self.meta("epoch") or 0) != self._epoch:
            raise FencedError(f"another process has taken over the run at {self.folder}")

    @contextmanager
    def _transaction(self, name: str) -> Generator[None]:
        """Run the body as one transaction; `name` names the failpoints around the COMMIT."""
        with self._mutex:
            if self._must_move_log():
                self._check_epoch()
                self._move_log()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._check_epoch()
                yield
                reach(f"journal.{name}.before")
                self._db.execute("COMMIT")
                self.changed = self._logged = True
                self.revision += 1
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            reach(f"journal.{name}.after")
