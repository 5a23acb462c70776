"""A connection to a run's journal, and which sealed files hold the committed rows.

While a reader is open no file that it may know of is removed (see `lock.share`).
"""

import json
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .journal_opening import open_journal_file
from .journal_pages import JOURNAL
from .journal_tables import JOURNAL_VERSION
from .lock import release, share
from .schemas import SCHEMA_VERSION
from .sealed import PartFile

__all__ = ["JOURNAL", "Files", "JournalError", "Part", "RowFile"]

_PARTS_SQL = """
SELECT u.key, p."table", p.sha256, u.iteration, u.stage, u.chunk, p.rows, p.size, p.pack
FROM parts p JOIN units u ON u.number = p.unit
JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage
WHERE CONDITION ORDER BY u.iteration, s.ordinal, u.chunk, p."table"
"""
_FILES_SQL = """
SELECT "table", sha256, rows, size, packed, partly, stage FROM (
    SELECT k."table", k.sha256, k.rows, k.size, 1 AS packed, k.live < k.units AS partly,
        k.stage, k.iteration, s.ordinal, k.chunk
    FROM packs k JOIN stages s ON s.iteration = k.iteration AND s.stage = k.stage
    UNION ALL
    SELECT p."table", p.sha256, p.rows, p.size, 0, 0, u.stage, u.iteration, s.ordinal, u.chunk
    FROM parts p JOIN units u ON u.number = p.unit
    JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage
    WHERE p.pack IS NULL
) WHERE (?1 IS NULL OR "table" = ?1) AND (?2 IS NULL OR iteration = ?2)
ORDER BY iteration, ordinal, chunk, "table", packed
"""


class JournalError(RuntimeError):
    """A journal that cannot be used: newer than this code, absent, or contradicting the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one unit in one table.

    Hash and size are those of the file that holds these rows alone; with `pack`, that file was
    superseded by the pack of this hash.
    """

    unit: str
    table: str
    sha256: str
    iteration: int
    stage: str
    chunk: int
    rows: int
    size: int
    pack: str | None = None

    @property
    def file(self) -> PartFile:
        """The file that holds, or held, these rows alone."""
        return PartFile(sha256=self.sha256, rows=self.rows, size=self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """A sealed file that holds committed rows of one stage: one unit's part, or a pack of parts.

    `live` is the chunks of a pack whose rows still count, or None if all do.
    """

    table: str
    stage: str
    sha256: str
    rows: int
    size: int
    packed: bool
    live: frozenset[int] | None = None


class Files:
    """Read access to a run's journal: its facts and its files."""

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        self.folder = folder
        self._mutex = threading.RLock()
        if not (folder / JOURNAL).exists():
            raise JournalError(f"there is no run at {folder}")
        self._shared = None if writable else share(folder)
        try:
            self._opened = open_journal_file(folder, writable=writable)
            self._db = self._opened.database
        except BaseException:
            self._unshare()
            raise
        try:
            self._check_version()
        except BaseException:
            Files.close(self)
            raise

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query; threads take turns on the one connection."""
        with self._mutex:
            return self._db.execute(sql, tuple(values)).fetchall()

    def _check_version(self) -> None:
        ((version,),) = self._query("PRAGMA user_version")
        if version < JOURNAL_VERSION:
            raise JournalError(
                f"the run at {self.folder} was written by an older lpfloop (journal {version}, "
                f"this code reads {JOURNAL_VERSION}): read it with that version, or start the run "
                "again under another name"
            )
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

    def parts_in(self, pack: str) -> list[Part]:
        """Return the parts that lie in a pack, in the order of their chunks."""
        return self._parts("p.pack = ?1", pack)

    def unpacked(self, iteration: int, stage: str, table: str) -> list[Part]:
        """Return a stage's parts of one table that are files of their own, in order."""
        return self._parts(
            'u.iteration = ?1 AND u.stage = ?2 AND p."table" = ?3 AND p.pack IS NULL',
            *(iteration, stage, table),
        )

    def _parts(self, condition: str, *values: object) -> list[Part]:
        rows = self._query(_PARTS_SQL.replace("CONDITION", condition), values)
        return [
            Part(unit=u, table=t, sha256=h, iteration=i, stage=s, chunk=c, rows=n, size=b, pack=k)
            for u, t, h, i, s, c, n, b, k in rows
        ]

    def files(self, *, table: str | None = None, iteration: int | None = None) -> list[RowFile]:
        """Return the files that hold the committed rows, in the order of stage and first chunk.

        One query reads them all: no row is in two of them, even if rows are packed meanwhile.
        """
        with self._mutex, self.snapshot():
            rows = self._query(_FILES_SQL, (table, iteration))
            return [
                RowFile(
                    table=t,
                    stage=stage,
                    sha256=h,
                    rows=n,
                    size=b,
                    packed=bool(packed),
                    live=frozenset(p.chunk for p in self.parts_in(h)) if partly else None,
                )
                for t, h, n, b, packed, partly, stage in rows
            ]

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Let all queries of the block, and of blocks within, see one state of the journal."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def packable(self, before: int | None, fewest: int) -> list[tuple[int, str, str]]:
        """Return iteration, stage and table where finished stages have `fewest` files or more.

        With `before`, only iterations before it.
        """
        return self._query(
            'SELECT u.iteration, u.stage, p."table" FROM parts p'
            " JOIN units u ON u.number = p.unit"
            " JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage"
            " WHERE p.pack IS NULL AND s.done = s.planned AND (?1 IS NULL OR u.iteration < ?1)"
            ' GROUP BY u.iteration, u.stage, p."table" HAVING count(*) >= ?2'
            ' ORDER BY u.iteration, s.ordinal, p."table"',
            (before, fewest),
        )

    def own_files(self, table: str, hashes: Sequence[str]) -> set[str]:
        """Return the hashes whose parts are still files of their own."""
        found = self._query(
            'SELECT sha256 FROM parts WHERE pack IS NULL AND "table" = ?'
            " AND sha256 IN (SELECT value FROM json_each(?))",
            (table, json.dumps(list(hashes))),
        )
        return {str(sha256) for (sha256,) in found}

    def superseded(self, table: str, hashes: Collection[str]) -> set[str]:
        """Return the hashes, of some, whose parts lie in a pack: in one made last, most likely."""
        packs = self._query(
            'SELECT sha256 FROM packs WHERE "table" = ? ORDER BY iteration DESC', (table,)
        )
        wanted, found = set(hashes), set[str]()
        for pack in packs:
            if found == wanted:
                break
            parts = self._query("SELECT sha256 FROM parts WHERE pack = ?", pack)
            found |= wanted.intersection(str(sha256) for (sha256,) in parts)
        return found

    def packs(self) -> Mapping[str, int]:
        """Return the size of each pack, by its hash."""
        return dict(self._query("SELECT sha256, size FROM packs"))

    def parts_of(self, unit: str) -> Mapping[str, Part]:
        """Return a unit's parts, by table."""
        return {part.table: part for part in self._parts("u.key = ?1", unit)}
