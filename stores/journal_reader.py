"""Reading a run's journal: its plans, results and costs, and the places of committed rows.

While a reader is open no file that it may know of is removed (see `lock.share`).
"""

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .journal_file import JOURNAL, JournalError, damage_named, open_journal
from .keys import Json
from .lock import release, share
from .schemas import SCHEMA_VERSION

StageId = tuple[int, str]
"""A stage, by its iteration and label."""

FILES = "files"
"""The folder of a run with the stage files of each table."""
TWICE = "seconds_twice"
"""The fact with the time of stages that was counted for more than one of them."""

_PARTS_SQL = """
SELECT u.key, p."table", p.sha256, u.iteration, u.stage, u.chunk, p.rows, p.size, p.file
FROM parts p JOIN units u ON u.number = p.unit JOIN stages s USING (iteration, stage)
WHERE CONDITION ORDER BY u.iteration, s.ordinal, u.chunk, p."table"
"""
_FILES_SQL = """
SELECT "table", sha256, rows, size, sealed, partly, stage, unit FROM (
    SELECT f."table", f.sha256, f.rows, f.size, 1 AS sealed, f.live < f.units AS partly,
        f.stage, f.iteration, s.ordinal, f.chunk, NULL AS unit
    FROM files f JOIN stages s USING (iteration, stage)
    UNION ALL
    SELECT p."table", p.sha256, p.rows, p.size, 0, 0, u.stage, u.iteration, s.ordinal, u.chunk,
        p.unit
    FROM parts p JOIN units u ON u.number = p.unit JOIN stages s USING (iteration, stage)
    WHERE p.file IS NULL
) WHERE (?1 IS NULL OR "table" = ?1) AND (?2 IS NULL OR iteration = ?2)
ORDER BY iteration, ordinal, chunk, "table", sealed
"""
_BLOB_SQL = 'SELECT data FROM blobs WHERE unit = ? AND "table" = ?'
_DOWNSTREAM_SQL = """
WITH RECURSIVE found(iteration, stage, decided) AS (
    SELECT iteration, stage, 0 FROM stages WHERE iteration = ?1 AND stage = ?2
    UNION
    SELECT e.iteration, e.stage, found.decided OR e.decides
    FROM found JOIN edges e ON e.from_iteration = found.iteration AND e.from_stage = found.stage
)
SELECT s.iteration, s.stage, min(found.decided) FROM found
JOIN stages s USING (iteration, stage)
WHERE (s.iteration, s.stage) != (?1, ?2)
GROUP BY s.iteration, s.stage ORDER BY s.iteration, s.ordinal
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one unit in one table.

    Hash and size belong to a Parquet file of these rows alone. `file` is the hash of the stage
    file that holds them, or None if they are still in the journal.
    """

    unit: str
    table: str
    sha256: str
    iteration: int
    stage: str
    chunk: int
    rows: int
    size: int
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """Committed rows of one stage: a stage file, or the Parquet blob of one unit in the journal.

    `unit` is the number of the blob's unit, None for a file; `data` is the blob, if it was asked
    for. `live` is the chunks of a file whose rows still count, or None if all do; `rows` is the
    number of rows that count.
    """

    table: str
    stage: str
    sha256: str
    rows: int
    size: int
    unit: int | None
    data: bytes | None = None
    live: frozenset[int] | None = None

    @property
    def sealed(self) -> bool:
        """Whether it is a file."""
        return self.unit is None

    def path(self, folder: Path) -> Path:
        """Return the path of a file of the run at `folder`."""
        return file_path(folder, self.table, self.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A planned piece of work: one chunk of one stage."""

    key: str
    chunk: int


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage's progress, and the sums of its units' telemetry."""

    iteration: int
    stage: str
    planned: int
    done: int
    seconds: float
    totals: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Serving:
    """A report of an endpoint about itself (`Done.served`), and its number of units in a stage."""

    iteration: int
    stage: str
    report: Mapping[str, Json]
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of units: tokens of all models, requests to the feedback model, US dollars."""

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

    def __sub__(self, other: "Cost") -> "Cost":
        """Return the difference, each field at least 0."""
        return Cost(
            tokens=max(0, self.tokens - other.tokens),
            judge_calls=max(0, self.judge_calls - other.judge_calls),
            money=max(0.0, self.money - other.money),
        )

    def as_json(self) -> str:
        """Return the cost in the journal's form."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """The planned stages that depend on a stage.

    `made` read its rows, or rows that were made from them. `decided` only follow a decision that
    was made from these rows, such as which policy an iteration begins with.
    """

    made: list[StageId]
    decided: list[StageId]

    @property
    def places(self) -> list[StageId]:
        """All of them."""
        return [*self.made, *self.decided]


class Reader:
    """Read access to a run's journal, safe while another process writes."""

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        self.folder = folder
        self._mutex = threading.RLock()
        if not (folder / JOURNAL).exists():
            raise JournalError(f"no run at {folder}")
        with ExitStack() as undo:
            self._shared = None if writable else share(folder)
            undo.callback(self._unshare)
            self._opened = open_journal(folder, writable=writable)
            undo.callback(self._opened.close)
            self._db = self._opened.database
            self._check_schema()
            undo.pop_all()

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query; threads take turns on the one connection."""
        with self._mutex, damage_named(self.folder):
            return self._db.execute(sql, tuple(values)).fetchall()

    def _check_schema(self) -> None:
        schema = int(self.meta("schema") or 0)
        if schema > SCHEMA_VERSION:
            raise JournalError(
                f"the lake of run {self.folder.name} has schema {schema}, this code knows "
                f"{SCHEMA_VERSION}: upgrade lpfloop to use it"
            )

    def close(self) -> None:
        """Close the connection."""
        self._opened.close()
        self._unshare()

    def _unshare(self) -> None:
        if self._shared is not None:
            release(self._shared)

    def meta(self, key: str) -> str | None:
        """Return a fact about the run, such as its resolved configuration, or None."""
        found = self._query("SELECT value FROM meta WHERE key = ?", (key,))
        return str(found[0][0]) if found else None

    def parts(self, *, table: str | None = None, iteration: int | None = None) -> list[Part]:
        """Return the committed parts, in the order of iteration, stage and chunk."""
        return self._parts(
            '(?1 IS NULL OR p."table" = ?1) AND (?2 IS NULL OR u.iteration = ?2)', table, iteration
        )

    def parts_in(self, file: str) -> list[Part]:
        """Return the parts in a stage file, in the order of their chunks."""
        return self._parts("p.file = ?1", file)

    def unsealed_parts(self, iteration: int, stage: str) -> list[Part]:
        """Return a stage's parts that are in the journal, in order."""
        return self._parts("u.iteration = ?1 AND u.stage = ?2 AND p.file IS NULL", iteration, stage)

    def unsealed_stages(self) -> list[StageId]:
        """Return the finished stages with rows in the journal, in the order of planning."""
        return self._query(
            "SELECT DISTINCT u.iteration, u.stage FROM parts p JOIN units u ON u.number = p.unit"
            " JOIN stages s USING (iteration, stage)"
            " WHERE p.file IS NULL AND s.done = s.planned ORDER BY u.iteration, s.ordinal"
        )

    def _parts(self, condition: str, *values: object) -> list[Part]:
        rows = self._query(_PARTS_SQL.replace("CONDITION", condition), values)
        return [
            Part(unit=u, table=t, sha256=h, iteration=i, stage=s, chunk=c, rows=n, size=b, file=f)
            for u, t, h, i, s, c, n, b, f in rows
        ]

    def files(
        self, *, table: str | None = None, iteration: int | None = None, data: bool = False
    ) -> list[RowFile]:
        """Return the files and blobs with the committed rows, by stage and first chunk.

        No row is in two of them, even if a stage is sealed meanwhile. With `data`, blobs have
        their bytes.
        """
        with self._mutex, self.snapshot():
            rows = self._query(_FILES_SQL, (table, iteration))
            live = {h: self.parts_in(h) for _, h, _, _, _, partly, *_ in rows if partly}
            return [
                RowFile(
                    table=t,
                    stage=stage,
                    sha256=h,
                    rows=sum(p.rows for p in live[h]) if partly else n,
                    size=b,
                    unit=unit,
                    data=self._query(_BLOB_SQL, (unit, t))[0][0] if data and not sealed else None,
                    live=frozenset(p.chunk for p in live[h]) if partly else None,
                )
                for t, h, n, b, sealed, partly, stage, unit in rows
            ]

    def part(self, unit: str, table: str) -> tuple[Part, bytes | None] | None:
        """Return a unit's part of a table, and its bytes if it is in the journal."""
        with self._mutex, self.snapshot():
            found = self._parts('u.key = ?1 AND p."table" = ?2', unit, table)
            if not found:
                return None
            blob = self._query(
                'SELECT data FROM blobs JOIN units ON number = unit WHERE key = ? AND "table" = ?',
                (unit, table),
            )
        return found[0], blob[0][0] if blob else None

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Run all queries of the block, and of nested blocks, on one state of the journal."""
        if self._db.in_transaction:
            yield
            return
        self._query("BEGIN")
        try:
            yield
        finally:
            self._query("COMMIT")

    def parts_of(self, unit: str) -> Mapping[str, Part]:
        """Return a unit's parts, by table."""
        return {part.table: part for part in self._parts("u.key = ?1", unit)}

    def downstream(self, iteration: int, stage: str) -> Downstream:
        """Return the planned stages that depend on a stage, by the edges stored with each plan."""
        rows = self._query(_DOWNSTREAM_SQL, (iteration, stage))
        return Downstream(
            made=[(number, label) for number, label, decided in rows if not decided],
            decided=[(number, label) for number, label, decided in rows if decided],
        )

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

    def pending(self, iteration: int, stage: str) -> list[Unit]:
        """Return the stage's units that are not done, in the order of its chunks."""
        rows = self._query(
            "SELECT key, chunk FROM units INDEXED BY units_owed"
            " WHERE iteration = ? AND stage = ? AND NOT done ORDER BY chunk",
            (iteration, stage),
        )
        return [Unit(key=key, chunk=chunk) for key, chunk in rows]

    def is_finished(self, iteration: int, stage: str) -> bool:
        """Whether all units of a stage are done."""
        return bool(
            self._query(
                "SELECT 1 FROM stages WHERE iteration = ? AND stage = ? AND done = planned",
                (iteration, stage),
            )
        )

    def is_done(self, unit: str) -> bool:
        """Whether a unit was committed."""
        return bool(self._query("SELECT 1 FROM units WHERE key = ? AND done", (unit,)))

    def count(self, iteration: int, stage: str, table: str) -> int:
        """Return how many rows of one table a stage has committed."""
        ((rows,),) = self._query(
            "SELECT coalesce(sum(p.rows), 0) FROM parts p JOIN units u ON u.number = p.unit"
            ' WHERE u.iteration = ? AND u.stage = ? AND p."table" = ?',
            (iteration, stage, table),
        )
        return int(rows)

    def stages(self) -> list[StageState]:
        """Return every planned stage, in the order of planning."""
        return [
            StageState(number, label, planned, done, seconds, json.loads(totals))
            for number, label, planned, done, seconds, totals in self._query(
                "SELECT iteration, stage, planned, done, seconds, totals FROM stages"
                " ORDER BY iteration, ordinal"
            )
        ]

    def seconds(self) -> float:
        """Return the wall time of all stages; each second of concurrent stages counts once."""
        ((total,),) = self._query("SELECT coalesce(sum(seconds), 0) FROM stages")
        return max(0.0, float(total) - float(self.meta(TWICE) or 0))

    def serving_reports(self) -> list[Serving]:
        """Return the reports of endpoints about themselves, once per stage, in stage order."""
        return [
            Serving(iteration, stage, json.loads(report), units)
            for iteration, stage, report, units in self._query(
                "SELECT u.iteration, u.stage, each.value, count(*) FROM stages s"
                " JOIN units u USING (iteration, stage), json_each(u.served) each"
                " WHERE u.served IS NOT NULL GROUP BY u.iteration, s.ordinal, each.value"
            )
        ]

    def damaged_units(self) -> list[str]:
        """Return the units whose rows were damaged and are pending again."""
        return [str(unit) for (unit,) in self._query("SELECT DISTINCT unit FROM lost")]

    def total_cost(self) -> Cost:
        """Return the cost of the run: committed, reserved now, and lost in crashes."""
        costs = [self.meta("abandoned") or "{}"]
        costs += [cost for (cost,) in self._query("SELECT cost FROM reservations")]
        costs += [cost for (cost,) in self._query("SELECT cost FROM replies")]
        costs += [totals for (totals,) in self._query("SELECT totals FROM stages")]
        return sum((read_cost(text) for text in costs), Cost())

    def kept_replies(self) -> dict[str, Cost]:
        """Return the unfinished units with kept replies, and the cost of these replies."""
        found = dict[str, Cost]()
        for unit, text in self._query("SELECT unit, cost FROM replies"):
            found[unit] = found.get(unit, Cost()) + read_cost(text)
        return found

    def replies(self, unit: str) -> list[str]:
        """Return the kept replies of a unit, oldest first (`Journal.keep`)."""
        rows = self._query("SELECT replies FROM replies WHERE unit = ? ORDER BY number", (unit,))
        return [str(text) for (text,) in rows]

    def all_units(self) -> list[tuple[Any, ...]]:
        """Return key, iteration, stage, chunk, whether done, rows and telemetry of every unit."""
        return self._query(
            "SELECT u.key, u.iteration, u.stage, u.chunk, u.done,"
            " (SELECT coalesce(sum(rows), 0) FROM parts WHERE unit = u.number), u.telemetry"
            " FROM units u JOIN stages s USING (iteration, stage)"
            " ORDER BY u.iteration, s.ordinal, u.chunk"
        )

    def all_events(self) -> list[tuple[Any, ...]]:
        """Return time, kind and detail of every event, oldest first."""
        return self._query("SELECT at, kind, detail FROM events ORDER BY rowid")

    def events(self, kind: str, *, after: str | None = None) -> list[Json]:
        """Return the details of the events of one kind, oldest first.

        With `after`, those that came after the last event of that kind.
        """
        rows = self._query(
            "SELECT detail FROM events WHERE kind = ?1 AND rowid >"
            " (SELECT coalesce(max(rowid), 0) FROM events WHERE kind = ?2) ORDER BY rowid",
            (kind, after),
        )
        return [json.loads(detail) for (detail,) in rows]


def file_path(folder: Path, table: str, sha256: str) -> Path:
    """Return the path of a stage file."""
    return folder / FILES / table / f"{sha256}.parquet"


def read_cost(text: str) -> Cost:
    """Read a cost from the journal; other sums in it are ignored."""
    found = json.loads(text)
    return Cost(
        tokens=int(found.get("tokens", 0) + found.get("prompt_tokens", 0)),
        judge_calls=int(found.get("judge_calls", 0)),
        money=float(found.get("money", 0.0)),
    )
