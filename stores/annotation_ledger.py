"""The ledger of people's judgements of a run, next to its journal: it takes them at any time.

Only the process that holds the run writes its journal, but people judge while it works. So any
number of processes on one machine write judgements here first, durably with each click. The next
process that holds the run imports them as rows. Imported judgements also stay in the ledger, which
records who was given which item.
"""

import math
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .address import bucket_of
from .durable import sync_folder

LEDGER = "annotations.sqlite"
LAPSE_S = 3600.0
"""An item that a person has held unjudged for so long is given to others, too."""
PATIENCE_MS = 30_000
_SQL = """
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS items (
    queue TEXT, place INTEGER, item TEXT NOT NULL, PRIMARY KEY (queue, place)
);
CREATE TABLE IF NOT EXISTS assignments (
    item TEXT, annotator TEXT, begun REAL NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (item, annotator)
);
CREATE TABLE IF NOT EXISTS annotations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, item TEXT NOT NULL,
    annotator TEXT NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL, row TEXT NOT NULL,
    undone INTEGER NOT NULL DEFAULT 0, unit TEXT
)
"""

Choose = Callable[[Mapping[int, set[str]], set[int]], int | None]
"""Chooses a place in a queue, from the holders and judges of each, and the places a person saw."""


class LedgerError(RuntimeError):
    """A ledger that cannot be kept or read, or an entry that can no longer be changed."""

    code = "LPF-210"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A person's judgement of an item; `row` is JSON in the format of an imported file.

    `number` counts the judgements, from 1; `unit` is the run's unit with the imported row, None
    before the import.
    """

    number: int = 0
    queue: str
    item: str
    annotator: str
    at: float
    seconds: float
    row: str
    undone: int = 0
    unit: str | None = None


_FIELDS = [field.name for field in fields(LedgerEntry)]


class AnnotationLedger:
    """The ledger of one run; several processes may have it open."""

    def __init__(self, folder: Path) -> None:
        """Open the ledger of the run at `folder`, or make it.

        Raises:
            LedgerError: if the lake is in a bucket, or the ledger cannot be opened.
        """
        bucket = bucket_of(folder.parent.parent)
        if bucket is not None:
            raise LedgerError(
                f"judgements are stored in the run's folder on a local disk, but {bucket} is a "
                "bucket: judge a copy, or import a file of judgements (`lpfloop import --as "
                "annotations`)"
            )
        self.path = folder / LEDGER
        try:
            self._database = _open(self.path)
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"{self.path} cannot be opened: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def begin(self, queue: str, facts: str, items: Callable[[], Sequence[str]]) -> None:
        """Keep a queue with its items in order, unless it is kept already."""
        if self._ask("SELECT 1 FROM queues WHERE name = ?", queue):
            return
        found = items()
        with self._transaction():
            if self._ask("SELECT 1 FROM queues WHERE name = ?", queue):
                return
            self._ask("INSERT INTO queues VALUES (?, ?)", queue, facts)
            rows = ((queue, place, item) for place, item in enumerate(found))
            self._database.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)

    def items(self, queue: str) -> list[str]:
        """Return the items of a queue, in order."""
        found = self._ask("SELECT item FROM items WHERE queue = ? ORDER BY place", queue)
        return [item for (item,) in found]

    def holders(self, queue: str) -> dict[int, set[str]]:
        """Return the people who have judged each place of a queue, or hold it now."""
        return self._people(queue, held_since=time.time() - LAPSE_S)

    def judges_by_place(self, queue: str) -> dict[int, set[str]]:
        """Return the people who have judged each place of a queue."""
        return self._people(queue, held_since=math.inf)

    def _people(self, queue: str, *, held_since: float) -> dict[int, set[str]]:
        found = dict[int, set[str]]()
        for place, annotator in self._ask(
            "SELECT i.place, a.annotator FROM items i JOIN assignments a ON a.item = i.item "
            "WHERE i.queue = ? AND (a.state = 'judged' OR (a.state = 'open' AND a.begun > ?))",
            *(queue, held_since),
        ):
            found.setdefault(place, set()).add(annotator)
        return found

    def held_item(self, queue: str, annotator: str) -> tuple[str, float] | None:
        """Return the item of a queue that a person holds, and since when (seconds of the epoch)."""
        found = self._ask(
            "SELECT i.item, a.begun FROM items i JOIN assignments a ON a.item = i.item "
            "WHERE i.queue = ? AND a.annotator = ? AND a.state = 'open' ORDER BY i.place LIMIT 1",
            *(queue, annotator),
        )
        return None if not found else (str(found[0][0]), float(found[0][1]))

    def assign(self, queue: str, annotator: str, choose: Choose) -> str | None:
        """Return the item for a person to judge now: the one they hold, or the one chosen."""
        with self._transaction():
            held = self.held_item(queue, annotator)
            if held is not None:
                return held[0]
            seen = self._ask(
                "SELECT i.place FROM items i JOIN assignments a ON a.item = i.item "
                "WHERE i.queue = ? AND a.annotator = ?",
                *(queue, annotator),
            )
            place = choose(self.holders(queue), {place for (place,) in seen})
            if place is None:
                return None
            item = self.items(queue)[place]
            self._ask(
                "INSERT INTO assignments VALUES (?, ?, ?, 'open')", item, annotator, time.time()
            )
            return item

    def give(self, entry: LedgerEntry) -> None:
        """Keep a person's judgement of the item they hold; durable on return.

        Raises:
            LedgerError: if they do not hold it.
        """
        with self._transaction():
            self._leave(entry.item, entry.annotator, "judged")
            self._ask(
                "INSERT INTO annotations (queue, item, annotator, at, seconds, row) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                *(entry.queue, entry.item, entry.annotator, entry.at, entry.seconds, entry.row),
            )

    def skip(self, item: str, annotator: str) -> None:
        """Give up a person's item to others, permanently.

        Raises:
            LedgerError: if they do not hold it.
        """
        with self._transaction():
            self._leave(item, annotator, "skipped")

    def undo(self, queue: str, annotator: str) -> str | None:
        """Take back a person's last judgement in a queue; they hold that item again.

        Returns the item, or None without a judgement.

        Raises:
            LedgerError: if the judgement was imported into the run.
        """
        with self._transaction():
            found = self._ask(
                "SELECT number, item, unit FROM annotations WHERE queue = ? AND annotator = ? "
                "AND NOT undone ORDER BY number DESC LIMIT 1",
                *(queue, annotator),
            )
            if not found:
                return None
            ((number, item, unit),) = found
            if unit is not None:
                raise LedgerError(
                    "your last judgement is already in the run and stays there: judge the answer "
                    "again by its id in `lpfloop view`, the later judgement decides"
                )
            self._ask("DELETE FROM assignments WHERE annotator = ? AND state = 'open'", annotator)
            self._ask("UPDATE annotations SET undone = 1 WHERE number = ?", number)
            self._ask(
                "UPDATE assignments SET state = 'open', begun = ? WHERE item = ? AND annotator = ?",
                *(time.time(), item, annotator),
            )
            return str(item)

    def again(self, item: str, annotator: str) -> None:
        """Give a person an item again that they have judged; the earlier judgement stays."""
        with self._transaction():
            self._ask(
                "INSERT OR REPLACE INTO assignments VALUES (?, ?, ?, 'open')",
                *(item, annotator, time.time()),
            )

    def judgments(self) -> list[LedgerEntry]:
        """Return all judgements in order, including the undone ones."""
        rows = self._ask(
            "SELECT number, queue, item, annotator, at, seconds, row, undone, unit "
            "FROM annotations ORDER BY number"
        )
        return [LedgerEntry(**dict(zip(_FIELDS, row, strict=True))) for row in rows]

    def waiting(self) -> list[LedgerEntry]:
        """Return the judgements that are to be imported into the run, in order."""
        return [entry for entry in self.judgments() if not entry.undone and entry.unit is None]

    def came_in(self, numbers: Iterable[int], unit: str) -> None:
        """Note that a unit of the run now holds these judgements."""
        with self._transaction():
            self._database.executemany(
                "UPDATE annotations SET unit = ? WHERE number = ?",
                [(unit, number) for number in numbers],
            )

    def _leave(self, item: str, annotator: str, state: str) -> None:
        if not self._ask(
            "UPDATE assignments SET state = ? WHERE item = ? AND annotator = ? AND state = 'open' "
            "RETURNING item",
            *(state, item, annotator),
        ):
            raise LedgerError(f"{annotator} does not hold {item}, or has judged it meanwhile")

    def _ask(self, sql: str, *values: object) -> list[Any]:
        return self._database.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self) -> Generator[None]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise LedgerError(f"{self.path} cannot be written: {error}") from error
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")


def has_ledger(folder: Path) -> bool:
    """Whether judging of the run at `folder` has begun."""
    return (folder / LEDGER).exists()


def entries(folder: Path) -> list[LedgerEntry]:
    """Return all judgements of the run at `folder`, in order."""
    if not has_ledger(folder):
        return []
    with closing(AnnotationLedger(folder)) as ledger:
        return ledger.judgments()


def _open(path: Path) -> sqlite3.Connection:
    """Connect to a ledger; a new one is readable by its owner alone."""
    new = not path.exists()
    if not (new or os.access(path.parent, os.W_OK)):
        # SQLite keeps an index of the log next to the file, which a read-only folder cannot take.
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
    if new:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        database.execute("PRAGMA journal_mode = WAL")
        # Each judgement is on the disk before the person sees the next item.
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        for statement in _SQL.split(";"):
            database.execute(statement)
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    if new:
        sync_folder(path.parent)
    return database
