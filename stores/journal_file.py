# pyright: basic
"""The SQLite file of a run's journal: opening, checking, copying.

SQLite's checksum VFS (sqlite.org/cksumvfs.html) writes a checksum into every page and checks it
whenever a page is read. The write-ahead log has checksums, too, but SQLite takes a damaged frame
for the end of the log, and would silently undo every commit after it. So the writer also counts its
commits, in the journal and in a small file next to it: a journal with fewer commits is damaged.

SQLite keeps an index of the log in another file of the folder, and so cannot read a journal in a
folder without write access, such as a read-only disk. There the file is opened as immutable. If its
run was killed, journal and log are first copied to a temporary folder: without the log, the last
commits would be missing.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import apsw.sqlite_extra

from .address import run_argument
from .durable import temporary_name

JOURNAL = "journal.sqlite"
COMMITS = "journal.commits"
BUSY_MS = 30_000
RESERVED = 8
"""The bytes at the end of each page that hold its checksum."""

JOURNAL_VERSION = 12
"""The version of the tables. A journal with tables of another version is refused."""

_TABLES_SQL = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE stages (
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    identity TEXT NOT NULL,
    planned INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    totals TEXT NOT NULL DEFAULT '{}',
    replaceable INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (iteration, stage)
) WITHOUT ROWID;
CREATE TABLE edges (
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    from_iteration INTEGER NOT NULL,
    from_stage TEXT NOT NULL,
    decides INTEGER NOT NULL,
    PRIMARY KEY (iteration, stage, from_iteration, from_stage)
) WITHOUT ROWID;
CREATE INDEX edges_from ON edges (from_iteration, from_stage);
CREATE TABLE units (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    telemetry TEXT,
    served TEXT
);
CREATE UNIQUE INDEX units_by_key ON units (key);
CREATE UNIQUE INDEX units_by_stage ON units (iteration, stage, chunk);
CREATE INDEX units_owed ON units (iteration, stage, chunk) WHERE NOT done;
CREATE TABLE parts (
    unit INTEGER NOT NULL REFERENCES units (number),
    "table" TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL,
    file TEXT,
    PRIMARY KEY (unit, "table")
) WITHOUT ROWID;
CREATE INDEX parts_by_file ON parts (file) WHERE file IS NOT NULL;
CREATE INDEX parts_unsealed ON parts ("table", unit) WHERE file IS NULL;
CREATE TABLE blobs (
    unit INTEGER NOT NULL,
    "table" TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (unit, "table"),
    FOREIGN KEY (unit, "table") REFERENCES parts ON DELETE CASCADE
);
CREATE TABLE lost (unit TEXT NOT NULL, "table" TEXT NOT NULL, sha256 TEXT NOT NULL,
    PRIMARY KEY (unit, "table")) WITHOUT ROWID;
CREATE TABLE reservations (unit TEXT NOT NULL, slice TEXT NOT NULL, cost TEXT NOT NULL,
    PRIMARY KEY (unit, slice)) WITHOUT ROWID;
CREATE TABLE replies (
    unit TEXT NOT NULL,
    number INTEGER NOT NULL,
    cost TEXT NOT NULL,
    replies TEXT NOT NULL,
    PRIMARY KEY (unit, number)
) WITHOUT ROWID;
CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE files (
    sha256 TEXT PRIMARY KEY,
    "table" TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    units INTEGER NOT NULL,
    live INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX files_by_stage ON files (iteration, stage);
"""
# A part is the rows of one unit in one table. It is a Parquet blob in `blobs` until its stage
# is finished; then `file` names the Parquet file that holds it.
#
# Units and parts have numbers in the order of their stages, so that rows which are committed
# together lie together on disk. Keys are hashes: ordered by them, each row would change another
# page.
#
# An edge records that a stage was planned from the rows of another one. With `decides`, the recipe
# took a decision from these rows, and the stage follows it: which policy it samples, for example.
# A stage is `replaceable` after a decision that it follows was forgotten: it may be planned again
# with other inputs.

_DAMAGE = frozenset({apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS})


class JournalError(RuntimeError):
    """A journal that cannot be used: newer than this code, absent, or contradicting the plan."""

    code = "LPF-211"


class DamagedJournalError(RuntimeError):
    """A journal whose bytes differ from the written ones."""

    code = "LPF-212"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A connection, and the folder of its private copy, if it has one."""

    database: Any
    copy: Path | None = None

    def close(self) -> None:
        """Close the connection, and remove the copy."""
        self.database.close(force=True)
        if self.copy is not None:
            shutil.rmtree(self.copy, ignore_errors=True)


class CommitCount:
    """The file with the number of commits of the journal in a folder.

    After a power loss the unsynced file may have a smaller count than the journal, never a larger.
    """

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._handle = os.open(folder / COMMITS, flags, 0o600)

    def write(self, count: int) -> None:
        """Replace the count."""
        os.pwrite(self._handle, _encode_count(count), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    @staticmethod
    def read(folder: Path) -> int:
        """Return the count, or 0 if the file is missing or damaged."""
        try:
            data = (folder / COMMITS).read_bytes()
        except FileNotFoundError:
            return 0
        digits = data[:20]
        return int(digits) if digits.isdigit() and data == _encode_count(int(digits)) else 0


def _encode_count(count: int) -> bytes:
    digits = b"%020d" % count
    return digits + hashlib.sha256(digits).hexdigest().encode()


def create_journal(path: Path, facts: dict[str, str]) -> None:
    """Make the file of a new run's journal."""
    with closing(_connection(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)) as new:
        new.reserve_bytes(reserve=RESERVED)
        new.execute("PRAGMA synchronous = FULL")
        with new:
            new.execute(_TABLES_SQL)
            new.execute(f"PRAGMA user_version = {JOURNAL_VERSION}")
            new.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
        new.execute("PRAGMA journal_mode = WAL")


def open_journal(folder: Path, *, writable: bool = False, counted: bool = True) -> Opened:
    """Connect to the journal in a folder.

    Without `counted`, commits may be missing at the end of its log.

    Raises:
        JournalError: if its tables have another version.
        DamagedJournalError: if the pages read on opening are damaged, or commits are missing.
    """
    # Read first: another process may commit meanwhile.
    commits = CommitCount.read(folder) if counted else 0
    with damage_named(folder):
        opened = _open(folder, writable=writable)
        try:
            _check(folder, opened.database, commits)
        except BaseException:
            opened.close()
            raise
    return opened


def _check(folder: Path, database: Any, commits: int) -> None:
    ((version,),) = database.execute("PRAGMA user_version").fetchall()
    if database.reserve_bytes() != RESERVED and version == JOURNAL_VERSION:
        raise DamagedJournalError(damage(folder, JOURNAL, "its first page was altered"))
    if version != JOURNAL_VERSION:
        age, what = ("an older", "read it with that version, or start it again under another name")
        if version > JOURNAL_VERSION:
            age, what = ("a newer", "upgrade lpfloop to use it")
        raise JournalError(
            f"the run at {folder} was written by {age} lpfloop (journal {version}, this code "
            f"reads {JOURNAL_VERSION}): {what}"
        )
    sql = "SELECT value FROM meta WHERE key = 'revision'"
    missing = commits - int(database.execute(sql).fetchall()[0][0])
    if missing > 0:
        message = f"the last {missing} commits are missing"
        raise DamagedJournalError(damage(folder, f"{JOURNAL}-wal", message))


def check_journal(folder: Path, *, counted: bool = True) -> None:
    """Read every page of a run's journal, and look for contradictions between them.

    Raises:
        DamagedJournalError: naming the damage.
    """
    if not (folder / JOURNAL).exists():
        raise DamagedJournalError(damage(folder, JOURNAL, "it is missing"))
    with closing(open_journal(folder, counted=counted)) as opened:
        require_sound(opened.database, folder)


def require_sound(database: Any, folder: Path, *, quick: bool = False) -> None:
    """Run SQLite's check of an open journal for contradictions.

    Raises:
        DamagedJournalError: with SQLite's first finding.
    """
    with damage_named(folder):
        kind = "quick_check" if quick else "integrity_check"
        ((message, *_), *_) = database.execute(f"PRAGMA {kind}").fetchall()
    if message != "ok":
        raise DamagedJournalError(damage(folder, JOURNAL, " ".join(str(message).split())))


@contextmanager
def temporary_file(folder: Path, name: str) -> Generator[Path]:
    """Yield an empty temporary file in a journal's folder, which may be moved away.

    If this process is killed, the next one that opens the journal removes the file.
    """
    path = temporary_name(folder / name)
    path.touch(mode=0o600, exist_ok=False)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def journal_copy(folder: Path) -> Generator[Path]:
    """Yield a temporary file in the journal's folder with a copy of it.

    Raises:
        DamagedJournalError: if the journal is damaged.
    """
    with temporary_file(folder, "copy") as draft:
        with closing(open_journal(folder)) as opened, damage_named(folder):
            opened.database.execute("VACUUM INTO ?", (str(draft),))
        yield draft


@contextmanager
def damage_named(folder: Path) -> Generator[None]:
    """Raise SQLite's errors about damaged files as damage of a run's journal.

    Raises:
        DamagedJournalError: with SQLite's message.
    """
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.IOError) as error:
        if isinstance(error, apsw.IOError) and extended_code(error) not in _DAMAGE:
            raise
        raise DamagedJournalError(damage(folder, JOURNAL, str(error))) from error


def extended_code(error: apsw.Error) -> int:
    """Return SQLite's extended error code."""
    return getattr(error, "extendedresult", apsw.SQLITE_ERROR)


def damage(folder: Path, name: str, what: str) -> str:
    """Return the message on a damaged file of the journal, with the remedy."""
    mend = f"`lpfloop lake repair {run_argument(folder)}` restores the journal"
    return f"{folder / name} is damaged ({what}): {mend}"


def _open(folder: Path, *, writable: bool) -> Opened:
    if writable:
        return Opened(database=_connection(folder / JOURNAL, apsw.SQLITE_OPEN_READWRITE))
    database = _connection(folder / JOURNAL, apsw.SQLITE_OPEN_READONLY)
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        database.close()
        if os.access(folder, os.W_OK):
            raise
        return _unwritable(folder)
    except BaseException:
        database.close()
        raise
    return Opened(database=database)


def _unwritable(folder: Path) -> Opened:
    """Open a journal without a writer, in a folder that this process cannot write to."""
    log = folder / f"{JOURNAL}-wal"
    if not log.exists() or not log.stat().st_size:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        address = f"{(folder / JOURNAL).absolute().as_uri()}?immutable=1"
        return Opened(database=_connection(address, flags))
    copy = Path(tempfile.mkdtemp(prefix="lpfloop-journal-"))
    try:
        for name in (JOURNAL, log.name):
            shutil.copyfile(folder / name, copy / name)  # noqa: TID251 -- this process's own
        database = _connection(copy / JOURNAL, apsw.SQLITE_OPEN_READONLY)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise
    return Opened(database=database, copy=copy)


def _connection(path: Path | str, flags: int) -> apsw.Connection:
    database = apsw.Connection(str(path), flags=flags, vfs=_checksum_vfs())
    database.set_busy_timeout(BUSY_MS)
    return database


@cache
def _checksum_vfs() -> str:
    """Return the name of SQLite's checksum VFS, once this process has loaded it."""
    with closing(apsw.Connection(":memory:")) as database:
        apsw.sqlite_extra.load(database, "cksumvfs")
    return "cksmvfs"
