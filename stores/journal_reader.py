"""Reading a run's journal: its tables, what their rows are, and a connection that never writes."""

import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .keys import Json
from .schemas import SCHEMA_VERSION
from .sealed import PartFile

JOURNAL_VERSION = 1
JOURNAL = "journal.sqlite"

TABLES_SQL = """
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
CREATE UNIQUE INDEX units_by_stage ON units (iteration, stage, chunk);
CREATE INDEX units_owed ON units (iteration, stage, chunk) WHERE NOT done;
CREATE TABLE parts (
    unit TEXT NOT NULL REFERENCES units (key),
    "table" TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    rows INTEGER NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (unit, "table")
) WITHOUT ROWID;
CREATE TABLE lost (unit TEXT NOT NULL, "table" TEXT NOT NULL, sha256 TEXT NOT NULL,
    PRIMARY KEY (unit, "table")) WITHOUT ROWID;
CREATE TABLE reservations (unit TEXT PRIMARY KEY, cost TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
"""


class JournalError(RuntimeError):
    """A journal that can not be used: newer than this code, absent, or contradicting the plan."""


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
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """How far a stage is, and the sums of its units' telemetry."""

    iteration: int
    stage: str
    planned: int
    done: int
    seconds: float
    totals: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What units spend: tokens of all models, questions to the feedback model, money."""

    tokens: int = 0
    judge_calls: int = 0
    money: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        """Return the sum."""
        return Cost(
            tokens=self.tokens + other.tokens,
            judge_calls=self.judge_calls + other.judge_calls,
            money=self.money + other.money,
        )

    def as_json(self) -> str:
        """Return the cost as the journal keeps it."""
        return json.dumps(
            {"tokens": self.tokens, "judge_calls": self.judge_calls, "money": self.money}
        )


class Reader:
    """Read access to a run's journal, safe while another process writes."""

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        self.folder = folder
        self._mutex = threading.RLock()
        path = folder / JOURNAL
        if not path.exists():
            raise JournalError(f"there is no run at {folder}")
        mode = "rw" if writable else "ro"
        self._db = sqlite3.connect(
            f"file:{path}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            self._db.execute("PRAGMA busy_timeout = 30000")
            self._check_version()
        except BaseException:
            self._db.close()
            raise

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query; threads take turns on the one connection."""
        with self._mutex:
            return self._db.execute(sql, tuple(values)).fetchall()

    def _check_version(self) -> None:
        ((version,),) = self._query("PRAGMA user_version")
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
        found = self._query("SELECT value FROM meta WHERE key = ?", (key,))
        return str(found[0][0]) if found else None

    def keys(self, iteration: int, stage: str) -> list[str]:
        """Return the keys of a stage's units, in the order of its chunks."""
        return [
            str(key)
            for (key,) in self._query(
                "SELECT key FROM units WHERE iteration = ? AND stage = ? ORDER BY chunk",
                (iteration, stage),
            )
        ]

    def key(self, iteration: int, stage: str, chunk: int) -> str:
        """Return the key of one unit."""
        ((key,),) = self._query(
            "SELECT key FROM units WHERE iteration = ? AND stage = ? AND chunk = ?",
            (iteration, stage, chunk),
        )
        return str(key)

    def owed(self, iteration: int, stage: str) -> list[Unit]:
        """Return the stage's units that are not done, in the order of its chunks."""
        rows = self._query(
            "SELECT key, chunk FROM units INDEXED BY units_owed"
            " WHERE iteration = ? AND stage = ? AND NOT done ORDER BY chunk",
            (iteration, stage),
        )
        return [Unit(key=key, chunk=chunk) for key, chunk in rows]

    def is_done(self, unit: str) -> bool:
        """Whether a unit was committed."""
        return bool(self._query("SELECT 1 FROM units WHERE key = ? AND done", (unit,)))

    def parts(self, *, table: str | None = None, iteration: int | None = None) -> list[Part]:
        """Return the committed parts, in the order of iteration, stage and chunk."""
        rows = self._query(
            'SELECT p.unit, p."table", p.sha256, u.iteration, u.stage, u.chunk, p.rows, p.size'
            " FROM parts p JOIN units u ON u.key = p.unit"
            " JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage"
            ' WHERE (?1 IS NULL OR p."table" = ?1) AND (?2 IS NULL OR u.iteration = ?2)'
            ' ORDER BY u.iteration, s.ordinal, u.chunk, p."table"',
            (table, iteration),
        )
        return [
            Part(unit=u, table=t, sha256=h, iteration=i, stage=s, chunk=c, rows=n, size=b)
            for u, t, h, i, s, c, n, b in rows
        ]

    def parts_of(self, unit: str) -> Mapping[str, PartFile]:
        """Return a unit's parts, by table."""
        found = self._query('SELECT "table", sha256, rows, size FROM parts WHERE unit = ?', (unit,))
        return {t: PartFile(sha256=h, rows=rows, size=size) for t, h, rows, size in found}

    def count(self, iteration: int, stage: str, table: str) -> int:
        """Return how many rows of one table a stage has committed."""
        ((rows,),) = self._query(
            "SELECT coalesce(sum(p.rows), 0) FROM parts p JOIN units u ON u.key = p.unit"
            ' WHERE u.iteration = ? AND u.stage = ? AND p."table" = ?',
            (iteration, stage, table),
        )
        return int(rows)

    def part(self, unit: str, table: str) -> str | None:
        """Return the hash of the part that holds a unit's rows of one table, or None."""
        found = self._query(
            'SELECT sha256 FROM parts WHERE unit = ? AND "table" = ?', (unit, table)
        )
        return str(found[0][0]) if found else None

    def stages(self) -> list[StageState]:
        """Return every planned stage, in the order of planning."""
        return [
            StageState(
                iteration=iteration,
                stage=stage,
                planned=planned,
                done=done,
                seconds=seconds,
                totals=json.loads(totals),
            )
            for iteration, stage, planned, done, seconds, totals in self._query(
                "SELECT iteration, stage, planned, done, seconds, totals FROM stages"
                " ORDER BY iteration, ordinal"
            )
        ]

    def lost(self) -> list[str]:
        """Return the units whose rows were damaged and are owed again."""
        return [str(unit) for (unit,) in self._query("SELECT DISTINCT unit FROM lost")]

    def spent(self) -> Cost:
        """Return what the run has spent: committed, reserved now, and lost in crashes."""
        costs = [self.meta("abandoned") or "{}"]
        costs += [cost for (cost,) in self._query("SELECT cost FROM reservations")]
        costs += [totals for (totals,) in self._query("SELECT totals FROM stages")]
        return sum((read_cost(text) for text in costs), Cost())

    def events(self, kind: str) -> list[Json]:
        """Return the details of the events of one kind, oldest first."""
        rows = self._query("SELECT detail FROM events WHERE kind = ? ORDER BY rowid", (kind,))
        return [json.loads(detail) for (detail,) in rows]


def read_cost(text: str) -> Cost:
    """Read a cost from the journal; other sums beside it do not matter."""
    found = json.loads(text)
    return Cost(
        tokens=int(found.get("tokens", 0) + found.get("prompt_tokens", 0)),
        judge_calls=int(found.get("judge_calls", 0)),
        money=float(found.get("money", 0.0)),
    )
