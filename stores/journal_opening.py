"""Opening a journal's database, also where nothing may be written: a read-only disk, an archive.

SQLite keeps an index of the write-ahead log in a file beside the journal, and so cannot read a
journal that was closed cleanly from a folder that it may not write to. There the file is opened as
one that nobody changes. If its run was killed, log and journal are first copied to a temporary
folder: without the log, what was committed last would be missing.
"""

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .journal_pages import (
    JOURNAL,
    PAGES,
    DamagedJournalError,
    PageHashes,
    damage,
    image_blocks,
    require_sound,
    verified,
    whole_log,
)

# What SQLite reports of files that it cannot use as they are, though they may be whole.
_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_UNWRITABLE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})

_State = tuple[tuple[int, int, int], ...]
_proven: dict[Path, tuple[_State, PageHashes | None]] = {}
_proving = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A connection, every byte of what it reads verified, and the folder of its private copy."""

    database: sqlite3.Connection
    pages: PageHashes | None
    copy: Path | None = None

    def close(self) -> None:
        """Close the connection, and remove the copy."""
        self.database.close()
        if self.copy is not None:
            shutil.rmtree(self.copy, ignore_errors=True)


def open_journal_file(folder: Path, *, writable: bool = False) -> Opened:
    """Connect to the journal in a folder, and verify every byte of it once in this process.

    Raises:
        DamagedJournalError: if it is damaged.
    """
    with damage_named(folder):
        if writable:
            return _proved(folder, _connected(folder / JOURNAL, "mode=rw"))
        try:
            return _proved(folder, _connected(folder / JOURNAL, "mode=ro"))
        except sqlite3.OperationalError as error:
            if _code(error) not in _UNWRITABLE or os.access(folder, os.W_OK):
                raise
        return _unwritable(folder)


def blocks_of(folder: Path) -> Iterator[bytes]:
    """Yield the journal in a folder as it is now, as the bytes of a database, a few at a time."""
    with closing(_connected(folder / JOURNAL, "mode=ro")) as database:
        # Until this connection closes, its state keeps later pages out of the journal's file.
        database.execute("BEGIN")
        database.execute("SELECT count(*) FROM sqlite_master").fetchall()
        yield from image_blocks(folder, whole_log(folder))


def check_journal(folder: Path) -> None:
    """Verify every page of a run's journal, and have SQLite look for contradictions between them.

    Raises:
        DamagedJournalError: naming what is damaged.
    """
    if not (folder / JOURNAL).exists():
        raise DamagedJournalError(damage(folder, JOURNAL, "it is missing"))
    with closing(open_journal_file(folder)) as opened, damage_named(folder):
        require_sound(opened.database, folder)


@contextmanager
def damage_named(folder: Path) -> Generator[None]:
    """Raise as damage of a run's journal what SQLite says only of damaged files.

    Raises:
        DamagedJournalError: with what SQLite says.
    """
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # What SQLite says may quote damaged text, which is not UTF-8.
        if isinstance(error, sqlite3.DatabaseError) and _code(error) in _NOT_DAMAGE:
            raise
        raise DamagedJournalError(damage(folder, JOURNAL, str(error))) from error


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; errors that Python's module found itself have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    database.execute("PRAGMA busy_timeout = 30000")
    database.execute("PRAGMA cell_size_check = ON")
    return database


def _proved(folder: Path, database: sqlite3.Connection, copy: Path | None = None) -> Opened:
    try:
        with _proving:
            state = _state(folder)
            seen = _proven.get(folder)
            if seen is None or seen[0] != state or seen[1] is None:
                _proven[folder] = (state, verified(database, folder))
            else:
                database.execute("SELECT count(*) FROM sqlite_master").fetchall()
                whole_log(folder)
            pages = _proven[folder][1]
    except BaseException:
        database.close()
        raise
    return Opened(database=database, pages=pages, copy=copy)


def _state(folder: Path) -> _State:
    """Return what tells whether the files of a journal are those that were verified."""
    found = list[tuple[int, int, int]]()
    for name in (JOURNAL, PAGES):
        with suppress(FileNotFoundError):
            told = (folder / name).stat()
            found.append((told.st_ino, told.st_size, told.st_mtime_ns))
    return tuple(found)


def _unwritable(folder: Path) -> Opened:
    """Open a journal that nobody writes, in a folder that this process cannot write to."""
    log = folder / f"{JOURNAL}-wal"
    if not log.exists() or not log.stat().st_size:
        return _proved(folder, _connected(folder / JOURNAL, "mode=ro&immutable=1"))
    copy = Path(tempfile.mkdtemp(prefix="lpfloop-journal-"))
    try:
        for name in (JOURNAL, log.name):
            shutil.copyfile(folder / name, copy / name)  # noqa: TID251 -- this process's own
        return _proved(folder, _connected(copy / JOURNAL, "mode=ro"), copy)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise
