"""The journal of a run: what was planned, decided and done, in SQLite.

A unit of work is planned once, under a key that hashes everything its result depends on, and done
once: the transaction that marks it done also names the parts that hold its rows, so a row is
visible if and only if its part is in the journal. One process writes (a file lock for life, and an
epoch as the fence against a holder that was overtaken while it slept); everyone else reads.
"""

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .durable import PartFile, make_folder, sync_file, sync_folder
from .keys import Json
from .schemas import SCHEMA_VERSION

JOURNAL_VERSION = 1
JOURNAL = "journal.sqlite"
LOCK = "run.lock"

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE stages (
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    planned INTEGER NOT NULL,
    seconds REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (iteration, stage)
) WITHOUT ROWID;
CREATE TABLE units (
    key TEXT PRIMARY KEY,
    iteration INTEGER NOT NULL,
    stage TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    telemetry TEXT
) WITHOUT ROWID;
CREATE INDEX units_by_stage ON units (iteration, stage, chunk);
CREATE TABLE parts (
    unit TEXT NOT NULL REFERENCES units (key),
    "table" TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (unit, "table")
) WITHOUT ROWID;
CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
"""


class JournalError(RuntimeError):
    """A journal that can not be used: newer than this code, absent, or contradicting the plan."""


class LockedError(RuntimeError):
    """Another process holds the run."""


class FencedError(RuntimeError):
    """This process was overtaken: a later holder of the run has begun to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A planned piece of work: one chunk of one stage."""

    key: str
    chunk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A sealed part in the journal."""

    unit: str
    table: str
    sha256: str
    iteration: int
    stage: str
    chunk: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """How far a stage is, and the sums of its units' telemetry."""

    iteration: int
    stage: str
    planned: int
    done: int
    seconds: float
    totals: Mapping[str, float]


class Reader:
    """Read access to a run's journal, safe while another process writes."""

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        self.folder = folder
        path = folder / JOURNAL
        if not path.exists():
            raise JournalError(f"there is no run at {folder}")
        mode = "rw" if writable else "ro"
        self._db = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None)
        self._db.execute("PRAGMA busy_timeout = 30000")
        self._check_version()

    def _check_version(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > JOURNAL_VERSION:
            raise JournalError(
                f"the run at {self.folder} was written by a newer lpfloop (journal {version}, "
                f"this code knows {JOURNAL_VERSION}): upgrade lpfloop to use it"
            )
        schema = int(self.meta("schema") or 0)
        if schema > SCHEMA_VERSION:
            raise JournalError(
                f"the lake of run {self.folder.name} has schema {schema}, this code knows "
                f"{SCHEMA_VERSION}: upgrade lpfloop to use it"
            )

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def meta(self, key: str) -> str | None:
        """Return a fact about the run, such as its resolved configuration, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def done(self, iteration: int, stage: str) -> frozenset[str]:
        """Return the keys of the stage's units that are done."""
        rows = self._db.execute(
            "SELECT key FROM units WHERE iteration = ? AND stage = ? AND done", (iteration, stage)
        )
        return frozenset(str(key) for (key,) in rows)

    def parts(self, *, table: str | None = None, iteration: int | None = None) -> list[Part]:
        """Return the committed parts, in the order of iteration, stage and chunk."""
        rows = self._db.execute(
            'SELECT p.unit, p."table", p.sha256, u.iteration, u.stage, u.chunk, p.rows'
            " FROM parts p JOIN units u ON u.key = p.unit"
            " JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage"
            ' WHERE (?1 IS NULL OR p."table" = ?1) AND (?2 IS NULL OR u.iteration = ?2)'
            ' ORDER BY u.iteration, s.ordinal, u.chunk, p."table"',
            (table, iteration),
        )
        return [
            Part(unit=u, table=t, sha256=h, iteration=i, stage=s, chunk=c, rows=n)
            for u, t, h, i, s, c, n in rows
        ]

    def count(self, unit: str, table: str) -> int:
        """Return how many rows of one table a unit has committed."""
        row = self._db.execute(
            'SELECT rows FROM parts WHERE unit = ? AND "table" = ?', (unit, table)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def part(self, unit: str, table: str) -> str | None:
        """Return the hash of the part that holds a unit's rows of one table, or None."""
        row = self._db.execute(
            'SELECT sha256 FROM parts WHERE unit = ? AND "table" = ?', (unit, table)
        ).fetchone()
        return None if row is None else str(row[0])

    def stages(self) -> list[StageState]:
        """Return every planned stage, in the order of planning."""
        states: list[StageState] = []
        for iteration, stage, planned, seconds in self._db.execute(
            "SELECT iteration, stage, planned, seconds FROM stages ORDER BY iteration, ordinal"
        ).fetchall():
            done, totals = 0, dict[str, float]()
            for (telemetry,) in self._db.execute(
                "SELECT telemetry FROM units WHERE iteration = ? AND stage = ? AND done",
                (iteration, stage),
            ):
                done += 1
                for name, value in json.loads(telemetry or "{}").items():
                    totals[name] = totals.get(name, 0) + value
            states.append(
                StageState(
                    iteration=iteration,
                    stage=stage,
                    planned=planned,
                    done=done,
                    seconds=seconds,
                    totals=totals,
                )
            )
        return states

    def events(self, kind: str) -> list[Json]:
        """Return the details of the events of one kind, oldest first."""
        rows = self._db.execute("SELECT detail FROM events WHERE kind = ? ORDER BY rowid", (kind,))
        return [json.loads(detail) for (detail,) in rows]


class Journal(Reader):
    """The one writer of a run's journal."""

    def __init__(self, folder: Path) -> None:
        self._lock = _acquire(folder)
        try:
            super().__init__(folder, writable=True)
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._epoch = self._begin_epoch()
        except BaseException:
            os.close(self._lock)
            raise

    @classmethod
    def create(cls, folder: Path, meta: Mapping[str, str]) -> "Journal":
        """Make the journal of a new run, with facts that never change, and open it."""
        make_folder(folder)
        lock = _acquire(folder)
        try:
            path = folder / JOURNAL
            draft = folder / f".tmp-{os.getpid()}-{JOURNAL}"
            draft.unlink(missing_ok=True)
            db = sqlite3.connect(draft, isolation_level=None)
            db.executescript(f"PRAGMA synchronous = FULL; {_TABLES}")
            db.execute(f"PRAGMA user_version = {JOURNAL_VERSION}")
            facts = {"epoch": "0", "schema": str(SCHEMA_VERSION), **meta}
            db.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
            db.close()
            sync_file(draft)
            draft.rename(path)
            sync_folder(folder)
            wal = sqlite3.connect(path)
            wal.execute("PRAGMA journal_mode = WAL")
            wal.close()
        finally:
            os.close(lock)
        return cls(folder)

    def close(self) -> None:
        """Close the connection and let the run go."""
        super().close()
        os.close(self._lock)

    def plan(self, iteration: int, stage: str, keys: Sequence[str]) -> list[Unit]:
        """Record the units of a stage, all at once, and return them in the order of their chunks.

        Raises:
            JournalError: if the stage was planned before with other units.
        """
        units = [Unit(key=key, chunk=chunk) for chunk, key in enumerate(keys)]
        with self._transaction():
            planned = self._db.execute(
                "SELECT key FROM units WHERE iteration = ? AND stage = ? ORDER BY chunk",
                (iteration, stage),
            ).fetchall()
            if planned and [key for (key,) in planned] != list(keys):
                raise JournalError(
                    f"stage {stage} of iteration {iteration} was planned with other inputs; "
                    "the run's data or code changed: start another run with --run NAME"
                )
            if not planned:
                self._insert_plan(iteration, stage, units)
        return units

    def _insert_plan(self, iteration: int, stage: str, units: Sequence[Unit]) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO stages (iteration, stage, ordinal, planned)"
            " VALUES (?1, ?2, (SELECT count(*) FROM stages WHERE iteration = ?1), ?3)",
            (iteration, stage, len(units)),
        )
        self._db.executemany(
            "INSERT INTO units (key, iteration, stage, chunk) VALUES (?, ?, ?, ?)",
            [(unit.key, iteration, stage, unit.chunk) for unit in units],
        )

    def commit(
        self, unit: str, parts: Mapping[str, PartFile], telemetry: Mapping[str, float]
    ) -> None:
        """Mark a unit done and make its parts visible; a unit that is done stays as it is."""
        with self._transaction():
            changed = self._db.execute(
                "UPDATE units SET done = 1, telemetry = ? WHERE key = ? AND NOT done",
                (json.dumps(dict(telemetry)), unit),
            ).rowcount
            if changed:
                self._db.executemany(
                    "INSERT INTO parts VALUES (?, ?, ?, ?, ?)",
                    [(unit, t, p.sha256, p.rows, p.size) for t, p in parts.items()],
                )

    def add_seconds(self, iteration: int, stage: str, seconds: float) -> None:
        """Add wall time spent on a stage (telemetry)."""
        with self._transaction():
            self._db.execute(
                "UPDATE stages SET seconds = seconds + ? WHERE iteration = ? AND stage = ?",
                (seconds, iteration, stage),
            )

    def record(self, kind: str, detail: Json) -> None:
        """Append an event (telemetry)."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?)", (time.time(), kind, json.dumps(detail))
            )

    def set_meta(self, facts: Iterable[tuple[str, str]]) -> None:
        """Change facts about the run."""
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(facts))

    def _begin_epoch(self) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
        self._db.execute("COMMIT")
        return int(self.meta("epoch") or 0)

    def _check_epoch(self) -> None:
        if int(self.meta("epoch") or 0) != self._epoch:
            raise FencedError(f"another process has taken over the run at {self.folder}")

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._check_epoch()
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _acquire(folder: Path) -> int:
    """Take the run's lock for life; the kernel frees it however the process ends."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 64, 0).decode(errors="replace").strip()
        os.close(handle)
        raise LockedError(
            f"run {folder.name} is in use by another process ({holder or 'pid unknown'})"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"pid {os.getpid()}\n".encode(), 0)
    return handle
