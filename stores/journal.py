"""The journal of a run: what was planned, decided and done, in SQLite, by its one writer.

A unit of work is planned once, under a key that hashes everything its result depends on, and done
once: the transaction that marks it done also names the parts that hold its rows, so a row is
visible if and only if its part is in the journal. One process writes (a file lock for life, and an
epoch as the fence against a holder that was overtaken while it slept); everyone else reads.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .durable import make_folder, publish_file
from .failpoints import reach
from .journal_reader import (
    JOURNAL,
    JOURNAL_VERSION,
    TABLES_SQL,
    Cost,
    JournalError,
    Reader,
    read_cost,
)
from .keys import Json
from .lock import acquire, release
from .schemas import SCHEMA_VERSION
from .sealed import PartFile


class FencedError(RuntimeError):
    """This process was overtaken: a later holder of the run has begun to write."""


class ContradictionError(JournalError):
    """A unit that was computed again, because its rows were damaged, came out different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A unit's result: the parts that hold its rows, and telemetry that is summed a stage."""

    unit: str
    parts: Mapping[str, PartFile]
    telemetry: Mapping[str, float]


class Journal(Reader):
    """The one writer of a run's journal; its methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
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
            self._epoch = self._begin_epoch()
            self._abandon_reservations()
        except BaseException:
            # What has begun here would keep the next process out.
            self._db.close()
            raise

    @classmethod
    def create(cls, folder: Path, meta: Mapping[str, str]) -> "Journal":
        """Make the journal of a new run, with facts that never change, and open it."""
        make_folder(folder)
        lock = acquire(folder)
        try:
            reach("journal.create.before")
            for left in folder.glob(f".tmp-*-{JOURNAL}*"):
                left.unlink()
            draft = folder / f".tmp-{os.getpid()}-{JOURNAL}"
            db = sqlite3.connect(draft, isolation_level=None)
            db.executescript(f"PRAGMA synchronous = FULL; {TABLES_SQL}")
            db.execute(f"PRAGMA user_version = {JOURNAL_VERSION}")
            facts = {"epoch": "0", "schema": str(SCHEMA_VERSION), **meta}
            db.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
            db.execute("PRAGMA journal_mode = WAL")
            db.close()
            publish_file(draft, folder / JOURNAL)
            reach("journal.create.after")
        finally:
            release(lock)
        return cls(folder)

    def close(self) -> None:
        """Close the connection and let the run go."""
        with self._mutex:
            super().close()
        release(self._lock)

    def plan(
        self, iteration: int, stage: str, identity: str, keys: Callable[[], Sequence[str]]
    ) -> int:
        """Record the units of a stage, all at once; return how many there are.

        `identity` hashes what the stage computes and from which stages. A stage that was planned
        under it has the same keys, which are then not computed again.

        Raises:
            JournalError: if the stage was planned before with other inputs.
        """
        found = self._query(
            "SELECT identity, planned FROM stages WHERE iteration = ? AND stage = ?",
            (iteration, stage),
        )
        if not found:
            return self._insert_plan(iteration, stage, identity, keys())
        ((planned_as, count),) = found
        if planned_as != identity:
            raise JournalError(
                f"stage {stage} of iteration {iteration} was planned with other inputs; "
                f"the run's data or code changed: start another run with --run NAME --fork "
                f"{self.folder.name}, which re-uses what still holds"
            )
        return int(count)

    def _insert_plan(self, iteration: int, stage: str, identity: str, keys: Sequence[str]) -> int:
        with self._transaction("plan"):
            self._db.execute(
                "INSERT INTO stages (iteration, stage, ordinal, identity, planned) VALUES"
                " (?1, ?2, (SELECT count(*) FROM stages WHERE iteration = ?1), ?3, ?4)",
                (iteration, stage, identity, len(keys)),
            )
            self._db.executemany(
                "INSERT INTO units (key, iteration, stage, chunk) VALUES (?, ?, ?, ?)",
                [(key, iteration, stage, chunk) for chunk, key in enumerate(keys)],
            )
        return len(keys)

    def commit(self, results: Sequence[Done]) -> None:
        """Mark units done and make their parts visible, all at once; what is done stays as it is.

        Raises:
            ContradictionError: if a unit whose rows were lost came out different.
        """
        with self._transaction("commit"):
            for result in results:
                self._commit_one(result)

    def _commit_one(self, result: Done) -> None:
        changed = self._db.execute(
            "UPDATE units SET done = 1, telemetry = ? WHERE key = ? AND NOT done"
            " RETURNING iteration, stage",
            (json.dumps(dict(result.telemetry)), result.unit),
        ).fetchall()
        if not changed:
            return
        self._settle_loss(result)
        self._db.executemany(
            "INSERT INTO parts VALUES (?, ?, ?, ?, ?)",
            [(result.unit, t, p.sha256, p.rows, p.size) for t, p in result.parts.items()],
        )
        self._db.execute("DELETE FROM reservations WHERE unit = ?", (result.unit,))
        ((iteration, stage),) = changed
        ((text,),) = self._query(
            "SELECT totals FROM stages WHERE iteration = ? AND stage = ?", (iteration, stage)
        )
        totals: dict[str, float] = json.loads(text)
        for name, value in result.telemetry.items():
            totals[name] = totals.get(name, 0) + value
        self._db.execute(
            "UPDATE stages SET done = done + 1, totals = ? WHERE iteration = ? AND stage = ?",
            (json.dumps(totals), iteration, stage),
        )

    def _settle_loss(self, result: Done) -> None:
        for table, sha256 in self._query(
            'SELECT "table", sha256 FROM lost WHERE unit = ?', (result.unit,)
        ):
            if table not in result.parts or result.parts[table].sha256 != sha256:
                raise ContradictionError(
                    f"unit {result.unit} was damaged, and computed again it gives other "
                    f"{table} than those that later stages were made of; "
                    f"`lpfloop repair {self.folder.name} --redo` keeps the new ones and plans "
                    "everything after them again"
                )
        self._db.execute("DELETE FROM lost WHERE unit = ?", (result.unit,))

    def lose(self, unit: str) -> None:
        """Make a unit owed again whose rows are damaged; it must come out as it was."""
        with self._transaction("lose"):
            self._db.execute(
                'INSERT OR IGNORE INTO lost SELECT unit, "table", sha256 FROM parts WHERE unit = ?',
                (unit,),
            )
            self._db.execute("DELETE FROM parts WHERE unit = ?", (unit,))
            changed = self._db.execute(
                "UPDATE units SET done = 0 WHERE key = ? AND done RETURNING iteration, stage",
                (unit,),
            ).fetchall()
            self._db.executemany(
                "UPDATE stages SET done = done - 1 WHERE iteration = ? AND stage = ?", changed
            )

    def redo(self) -> int:
        """Accept what lost units will give, and forget all that was planned after the first.

        Returns how many units were forgotten.
        """
        with self._transaction("redo"):
            found = self._query(
                "SELECT u.iteration, s.ordinal FROM lost l JOIN units u ON u.key = l.unit"
                " JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage"
                " ORDER BY u.iteration, s.ordinal LIMIT 1"
            )
            self._db.execute("DELETE FROM lost")
            return sum(self._forget_after(iteration, ordinal) for iteration, ordinal in found)

    def _forget_after(self, iteration: int, ordinal: int) -> int:
        later = self._query(
            "SELECT iteration, stage FROM stages"
            " WHERE iteration > ?1 OR (iteration = ?1 AND ordinal > ?2)",
            (iteration, ordinal),
        )
        self._abandon(
            totals
            for place in later
            for (totals,) in self._query(
                "SELECT totals FROM stages WHERE iteration = ? AND stage = ?", place
            )
        )
        self._db.executemany(
            "DELETE FROM parts WHERE unit IN"
            " (SELECT key FROM units WHERE iteration = ? AND stage = ?)",
            later,
        )
        forgotten = self._db.executemany(
            "DELETE FROM units WHERE iteration = ? AND stage = ?", later
        ).rowcount
        self._db.executemany("DELETE FROM stages WHERE iteration = ? AND stage = ?", later)
        return max(forgotten, 0)

    def reserve(self, unit: str, cost: Cost) -> None:
        """Note what a unit may spend before it is spent; its commit settles the account."""
        with self._transaction("reserve"):
            self._db.execute(
                "INSERT OR REPLACE INTO reservations VALUES (?, ?)", (unit, cost.as_json())
            )

    def add_seconds(self, iteration: int, stage: str, seconds: float) -> None:
        """Add wall time spent on a stage (telemetry)."""
        with self._transaction("add_seconds"):
            self._db.execute(
                "UPDATE stages SET seconds = seconds + ? WHERE iteration = ? AND stage = ?",
                (seconds, iteration, stage),
            )

    def record(self, kind: str, detail: Json) -> None:
        """Append an event (telemetry)."""
        with self._transaction("record"):
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?)", (time.time(), kind, json.dumps(detail))
            )

    def set_meta(self, facts: Iterable[tuple[str, str]]) -> None:
        """Change facts about the run."""
        with self._transaction("set_meta"):
            self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(facts))

    def _begin_epoch(self) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
        epoch = int(self.meta("epoch") or 0)
        reach("journal.epoch.before")
        self._db.execute("COMMIT")
        reach("journal.epoch.after")
        return epoch

    def _abandon_reservations(self) -> None:
        """Count what a dead process had reserved as spent: nobody knows that it was not."""
        left = self._query("SELECT cost FROM reservations")
        if not left:
            return
        with self._transaction("abandon"):
            self._db.execute("DELETE FROM reservations")
            self._abandon(cost for (cost,) in left)

    def _abandon(self, costs: Iterable[str]) -> None:
        """Count as spent what no committed unit accounts for any more."""
        before = read_cost(self.meta("abandoned") or "{}")
        total = sum(map(read_cost, costs), before)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('abandoned', ?)", (total.as_json(),))

    def _check_epoch(self) -> None:
        if int(self.meta("epoch") or 0) != self._epoch:
            raise FencedError(f"another process has taken over the run at {self.folder}")

    @contextmanager
    def _transaction(self, name: str) -> Generator[None]:
        """Do all of the body or nothing; `name` is that of the failpoints around the COMMIT."""
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
