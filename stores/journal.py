"""The journal of a run: its plans, decisions and results, in SQLite, written by one process.

A unit of work is planned once, under a key that hashes everything its result depends on, and done
once: the transaction that marks it done also holds its rows, as Parquet blobs. When its stage is
finished, a Parquet file replaces the blobs. One process writes (a file lock for life, and an epoch
as a fence against a holder that was suspended and overtaken); all others read.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import apsw

from .address import bucket_of, run_argument
from .durable import TEMPORARY, make_folder, publish_file, sweep
from .failpoints import reach
from .journal_file import (
    JOURNAL,
    CommitCount,
    DamagedJournalError,
    create_journal,
    damage_named,
    require_sound,
)
from .journal_reader import TWICE, Cost, Downstream, JournalError, Part, Reader, StageId, read_cost
from .keys import Json, canonical_json
from .lock import FencedError, acquire, admit_readers, release
from .objects import require_unused
from .schemas import SCHEMA_VERSION
from .verified import EncodedRows

if TYPE_CHECKING:
    from .run_lease import LeaseKeeper

AMENDED = "amended"
"""The kind of the event that records a unit's replacement."""
BACKUPS = "backups"
LOG_PAGES = 4096
"""The pages in the log at which SQLite moves it into the journal's file."""
CACHE_KIB = 64 << 10


class ContradictionError(JournalError):
    """A damaged unit that was computed again gave different rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A unit's result: its rows by table, and telemetry, which is summed by stage.

    `served` holds the models and fingerprints that the answering endpoints reported, once each.
    It is not part of the digest.
    """

    unit: str
    parts: Mapping[str, EncodedRows]
    telemetry: Mapping[str, float]
    served: Sequence[Mapping[str, Json]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSlice:
    """A slice's replies and their cost, kept until its unit is whole.

    `replies` is opaque to the journal; whoever resumes the unit reads it back.
    """

    unit: str
    slice_: str
    cost: Cost
    replies: str


class Journal(Reader):
    """The one writer of a run's journal; its methods may be called from several threads.

    `revision` counts the commits, and `backed_up` is its value when the journal was opened or
    last backed up. `keeper` keeps this process's lease on a run in a bucket; None in a folder.
    `on_taken_over` is called, in a thread of the store, when another machine has the run.
    """

    def __init__(self, folder: Path) -> None:
        self.revision = self.backed_up = 0
        self.keeper: LeaseKeeper | None = None
        self.on_taken_over: Callable[[], None] = lambda: None
        with ExitStack() as undo:
            self._lock = acquire(folder)
            undo.callback(release, self._lock)
            super().__init__(folder, writable=True)
            # An open transaction would lock out the next process.
            undo.callback(self._db.close, force=True)
            self._take_over()
            undo.pop_all()

    def _take_over(self) -> None:
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        require_sound(self._db, self.folder, quick=True)
        url = bucket_of(self.folder.parent.parent)
        if url is not None:
            from .run_lease import LeaseKeeper, take_lease

            self.keeper = LeaseKeeper(self, take_lease(url, self.folder))
        for left in self.folder.glob(f"{TEMPORARY}*"):
            left.unlink()
        sweep(self.folder / BACKUPS)
        admit_readers(self.folder)
        self.revision = int(self.meta("revision") or 0)
        self._commits = CommitCount(self.folder)
        self._epoch = self._begin_epoch()
        self.backed_up = self.revision
        self._abandon_reservations()
        if self.keeper is not None:
            self.keeper.start()

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
            facts = {"epoch": "0", "revision": "0", "schema": str(SCHEMA_VERSION), **meta}
            create_journal(draft, facts)
            admit_readers(folder)
            publish_file(draft, folder / JOURNAL)
            reach("journal.create.after")
        finally:
            release(lock)
        held = cls(folder)
        try:
            if held.keeper is not None:
                held.keeper.take_snapshot()  # From now on the run can be taken over.
        except BaseException:
            held.close()
            raise
        return held

    def close(self) -> None:
        """Close the connection and release the run's lock; the bucket gets a last snapshot."""
        if self.keeper is not None:
            self.keeper.close()
        with self._mutex:
            # Errors here are left to the next writer.
            with suppress(apsw.Error, DamagedJournalError, FencedError):
                self._shrink()
            super().close()
            self._commits.close()
        release(self._lock)

    def _shrink(self) -> None:
        """Give free pages back to the disk, if most pages are free: rows have moved into files."""
        ((free,),), ((pages,),) = (
            self._query(f"PRAGMA {count}") for count in ("freelist_count", "page_count")
        )
        if 2 * free > pages:
            self.check_epoch()
            self._query("VACUUM")

    def _begin_epoch(self) -> int:
        self._epoch = int(self.meta("epoch") or 0)
        with self._transaction("epoch"):
            self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
        return self._epoch + 1

    def _abandon_reservations(self) -> None:
        """Count a dead process's reservations as spent: its requests may have been charged."""
        left = self._query("SELECT cost FROM reservations")
        if not left:
            return
        with self._transaction("abandon"):
            self._db.execute("DELETE FROM reservations")
            self._abandon(cost for (cost,) in left)

    def _abandon(self, costs: Iterable[str]) -> None:
        """Add costs without a committed unit to the spent cost."""
        before = read_cost(self.meta("abandoned") or "{}")
        total = sum(map(read_cost, costs), before)
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('abandoned', ?)", (total.as_json(),))

    def check_epoch(self) -> None:
        """Raise FencedError if another process has taken the run over."""
        if self.keeper is not None and self.keeper.overtaken is not None:
            raise self.keeper.overtaken
        if int(self.meta("epoch") or 0) != self._epoch:
            raise FencedError(f"another process has taken over the run at {self.folder}")

    @contextmanager
    def _transaction(self, name: str) -> Generator[None]:
        """Run the body as one transaction; `name` names the failpoints around the COMMIT."""
        with self._mutex, damage_named(self.folder):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self.check_epoch()
                yield
                self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
                reach(f"journal.{name}.before")
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self.revision += 1
            self._commits.write(self.revision)
            reach(f"journal.{name}.after")

    def plan(
        self,
        iteration: int,
        stage: str,
        identity: str,
        keys: Callable[[], Sequence[str]],
        *,
        upstream: Collection[str] = (),
        decided_by: StageId | None = None,
    ) -> int:
        """Record the units of a stage, all at once; return how many there are.

        `identity` hashes the stage's computation and its input stages. A stage planned before
        under the same identity has the same keys, so these are not computed again. The stages that
        it reads are stored with it: those whose identity, or the key of one of whose units, is in
        `upstream`, and the stage `decided_by` whose rows the recipe took the last decision.

        Raises:
            JournalError: if the stage was planned before with other inputs.
        """
        found = self._query(
            "SELECT identity, planned, replaceable FROM stages WHERE iteration = ? AND stage = ?",
            (iteration, stage),
        )
        if found:
            ((planned_as, count, replaceable),) = found
            if planned_as == identity:
                if replaceable:
                    with self._transaction("plan"):
                        self._db.execute(
                            "UPDATE stages SET replaceable = 0 WHERE iteration = ? AND stage = ?",
                            (iteration, stage),
                        )
                return int(count)
            if not replaceable:
                raise JournalError(
                    f"stage {stage} of iteration {iteration} was planned with other inputs; the "
                    "run's data or code changed: start another run with --run NAME --reuse-from "
                    f"{self.folder.name}, which re-uses what still holds"
                )
            self.forget(iteration, stage)
        return self._insert_plan(iteration, stage, identity, keys(), upstream, decided_by)

    def _insert_plan(
        self,
        iteration: int,
        stage: str,
        identity: str,
        keys: Sequence[str],
        upstream: Collection[str],
        decided_by: StageId | None,
    ) -> int:
        with self._transaction("plan"):
            self._db.execute(
                "INSERT INTO stages (iteration, stage, ordinal, identity, planned) VALUES"
                " (?1, ?2, (SELECT coalesce(max(ordinal) + 1, 0) FROM stages WHERE iteration = ?1),"
                " ?3, ?4)",
                (iteration, stage, identity, len(keys)),
            )
            self._db.executemany(
                "INSERT INTO units (key, iteration, stage, chunk) VALUES (?, ?, ?, ?)",
                [(key, iteration, stage, chunk) for chunk, key in enumerate(keys)],
            )
            names = json.dumps(list(upstream))
            self._db.execute(
                "INSERT INTO edges SELECT ?1, ?2, iteration, stage, 0 FROM stages"
                " WHERE identity IN (SELECT value FROM json_each(?3))"
                " UNION SELECT ?1, ?2, iteration, stage, 0 FROM units"
                " WHERE key IN (SELECT value FROM json_each(?3))",
                (iteration, stage, names),
            )
            if decided_by is not None:
                self._db.execute(
                    "INSERT OR IGNORE INTO edges VALUES (?, ?, ?, ?, 1)",
                    (iteration, stage, *decided_by),
                )
        return len(keys)

    def commit(self, results: Sequence[Done]) -> dict[StageId, tuple[int, int]]:
        """Mark units done and make their rows visible, in one transaction.

        Units that are done already stay as they are.

        Return how many rows and bytes each stage has got.

        Raises:
            ContradictionError: if a unit whose rows were lost gave different rows.
        """
        with self._transaction("commit"):
            return self._commit_all(results)

    def _commit_all(self, results: Sequence[Done]) -> dict[StageId, tuple[int, int]]:
        done = dict[StageId, list[Done]]()
        parts = list[tuple[int, str, str, int, int]]()
        blobs = list[tuple[int, str, bytes]]()
        for result in results:
            changed = self._db.execute(
                "UPDATE units SET done = 1, telemetry = ?, served = ? WHERE key = ? AND NOT done"
                " RETURNING number, iteration, stage",
                (json.dumps(dict(result.telemetry)), _list_reports(result.served), result.unit),
            ).fetchall()
            for number, *stage in changed:
                done.setdefault(tuple(stage), []).append(result)
                for table, part in result.parts.items():
                    parts.append((number, table, part.sha256, part.rows, part.size))
                    blobs.append((number, table, part.data))
        settled = [result for stage in done.values() for result in stage]
        self._settle_losses(settled)
        self._db.executemany(
            'INSERT INTO parts (unit, "table", sha256, rows, size) VALUES (?, ?, ?, ?, ?)', parts
        )
        self._db.executemany("INSERT INTO blobs VALUES (?, ?, ?)", blobs)
        units = [(result.unit,) for result in settled]
        self._db.executemany("DELETE FROM reservations WHERE unit = ?", units)
        self._db.executemany("DELETE FROM replies WHERE unit = ?", units)
        for stage, its in done.items():
            self._count(*stage, its)
        return {
            stage: (
                sum(part.rows for result in its for part in result.parts.values()),
                sum(part.size for result in its for part in result.parts.values()),
            )
            for stage, its in done.items()
        }

    def _count(self, iteration: int, stage: str, done: Sequence[Done]) -> None:
        """Add units to the sums over their stage's done units."""
        ((text,),) = self._query(
            "SELECT totals FROM stages WHERE iteration = ? AND stage = ?", (iteration, stage)
        )
        totals: dict[str, float] = json.loads(text)
        for result in done:
            totals = _add_totals(totals, result.telemetry)
        self._db.execute(
            "UPDATE stages SET done = done + ?, totals = ? WHERE iteration = ? AND stage = ?",
            (len(done), json.dumps(totals), iteration, stage),
        )

    def amend(
        self,
        unit: str,
        result: Done,
        why: Mapping[str, Json],
    ) -> Downstream:
        """Replace a done unit's result by one under another key, which adds rows to it.

        The result's telemetry is its cost beyond the unit's. Rows made from the unit's stage
        are forgotten as by `forget`; return the stages that depend on it. An event `amended` keeps
        both keys, and `why`.

        Raises:
            JournalError: if the unit is not done; nothing is changed then.
        """
        with self._transaction("amend"):
            found = self._query(
                "SELECT iteration, stage, chunk, telemetry, served FROM units"
                " WHERE key = ? AND done",
                (unit,),
            )
            if not found:
                raise JournalError(f"unit {unit} is not done")
            ((iteration, stage, chunk, telemetry, served),) = found
            downstream = self._forget_downstream(iteration, stage)
            self._take_parts(unit)
            self._db.execute("DELETE FROM units WHERE key = ?", (unit,))
            self._db.execute(
                "INSERT INTO units (key, iteration, stage, chunk) VALUES (?, ?, ?, ?)",
                (result.unit, iteration, stage, chunk),
            )
            self._db.execute(
                "UPDATE stages SET done = done - 1 WHERE iteration = ? AND stage = ?",
                (iteration, stage),
            )
            self._commit_all([result])
            whole = _add_totals(json.loads(telemetry), result.telemetry)
            self._db.execute(
                "UPDATE units SET telemetry = ?, served = ? WHERE key = ?",
                (
                    json.dumps(whole),
                    _list_reports([*json.loads(served or "[]"), *result.served]),
                    result.unit,
                ),
            )
            detail = {"unit": result.unit, "before": unit, **why}
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?)", (time.time(), AMENDED, json.dumps(detail))
            )
        return downstream

    def _settle_losses(self, results: Sequence[Done]) -> None:
        if not self._query("SELECT 1 FROM lost LIMIT 1"):
            return
        for result in results:
            for table, sha256 in self._query(
                'SELECT "table", sha256 FROM lost WHERE unit = ?', (result.unit,)
            ):
                if table not in result.parts or result.parts[table].sha256 != sha256:
                    raise ContradictionError(
                        f"unit {result.unit} was damaged, and computed again it gives other "
                        f"{table} than later stages were made from; `lpfloop lake repair "
                        f"{run_argument(self.folder)} --redo` keeps the new ones and plans "
                        "everything after them again"
                    )
            self._db.execute("DELETE FROM lost WHERE unit = ?", (result.unit,))

    def seal(self, file: EncodedRows, parts: Sequence[Part]) -> None:
        """Record a stage file for parts of one stage and table, given in the order of their chunks.

        Raises:
            JournalError: if one of them was lost meanwhile; nothing is changed then.
        """
        first = parts[0]
        with self._transaction("seal"):
            self._db.execute(
                'INSERT INTO files (sha256, "table", iteration, stage, chunk, units, live, rows,'
                " size) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8)",
                (
                    *(file.sha256, first.table, first.iteration, first.stage, first.chunk),
                    *(len(parts), file.rows, file.size),
                ),
            )
            before = self._db.total_changes()
            self._db.executemany(
                "UPDATE parts SET file = ? WHERE unit = (SELECT number FROM units WHERE key = ?)"
                ' AND "table" = ? AND sha256 = ? AND file IS NULL',
                [(file.sha256, part.unit, part.table, part.sha256) for part in parts],
            )
            changed = self._db.total_changes() - before
            if changed != len(parts):
                raise JournalError(f"{len(parts) - changed} of {len(parts)} parts are gone")
            self._db.executemany(
                "DELETE FROM blobs WHERE unit = (SELECT number FROM units WHERE key = ?)"
                ' AND "table" = ?',
                [(part.unit, part.table) for part in parts],
            )

    def reserve(self, unit: str, cost: Cost, *, slice_: str = "") -> None:
        """Reserve the maximal cost of a unit, or of a slice of its requests, before it is spent.

        `keep` replaces the reservation of a slice, `commit` a unit's.
        """
        with self._transaction("reserve"):
            self._db.execute(
                "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?)",
                (unit, slice_, cost.as_json()),
            )

    def keep(self, slices: Sequence[KeptSlice]) -> None:
        """Keep slices' replies, in one transaction, and delete the reservations for them."""
        with self._transaction("keep"):
            self._db.executemany(
                "DELETE FROM reservations WHERE unit = ? AND slice = ?",
                [(kept.unit, kept.slice_) for kept in slices],
            )
            self._db.executemany(
                "INSERT INTO replies VALUES (?1, (SELECT count(*) FROM replies WHERE unit = ?1),"
                " ?2, ?3)",
                [(kept.unit, kept.cost.as_json(), kept.replies) for kept in slices],
            )

    def add_seconds(
        self, iteration: int, stage: str, seconds: float, *, twice: float = 0.0
    ) -> None:
        """Add wall time (seconds) of a stage, `twice` of it shared with other stages: telemetry."""
        with self._transaction("add_seconds"):
            self._db.execute(
                "UPDATE stages SET seconds = seconds + ? WHERE iteration = ? AND stage = ?",
                (seconds, iteration, stage),
            )
            if twice:
                total = float(self.meta(TWICE) or 0) + twice
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (TWICE, str(total)))

    def record(self, kind: str, detail: Json) -> None:
        """Append an event; it is telemetry, not part of the digest."""
        with self._transaction("record"):
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?)", (time.time(), kind, json.dumps(detail))
            )

    def set_meta(self, facts: Iterable[tuple[str, str]]) -> None:
        """Change facts about the run."""
        with self._transaction("set_meta"):
            self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(facts))

    def lose(self, unit: str) -> None:
        """Make a unit with damaged rows pending again; it must give the same rows as before."""
        with self._transaction("lose"):
            self._db.execute(
                'INSERT OR IGNORE INTO lost SELECT key, "table", sha256'
                " FROM parts JOIN units ON number = unit WHERE key = ?",
                (unit,),
            )
            self._take_parts(unit)
            changed = self._db.execute(
                "UPDATE units SET done = 0 WHERE key = ? AND done RETURNING iteration, stage",
                (unit,),
            ).fetchall()
            self._db.executemany(
                "UPDATE stages SET done = done - 1 WHERE iteration = ? AND stage = ?", changed
            )

    def _take_parts(self, unit: str) -> None:
        """Delete a unit's parts, and stop counting its rows in the files that hold them."""
        self._db.execute(
            "UPDATE files SET live = live - 1 WHERE sha256 IN"
            " (SELECT file FROM parts JOIN units ON number = unit WHERE key = ?)",
            (unit,),
        )
        self._db.execute("DELETE FROM files WHERE live = 0")
        self._db.execute(
            "DELETE FROM parts WHERE unit = (SELECT number FROM units WHERE key = ?)", (unit,)
        )

    def forget(self, iteration: int, stage: str) -> Downstream:
        """Forget a stage and the stages made from its rows; their cost stays.

        Stages that only follow a decision made from these rows are kept if the recipe plans them
        with the same inputs, and replaced if it plans them with others.
        """
        with self._transaction("forget"):
            found = self._forget_downstream(iteration, stage)
            self._forget([(iteration, stage)])
            return found

    def _forget_downstream(self, iteration: int, stage: str) -> Downstream:
        found = self.downstream(iteration, stage)
        self._db.executemany(
            "UPDATE stages SET replaceable = 1 WHERE iteration = ? AND stage = ?", found.decided
        )
        self._forget(found.made)
        return found

    def redo(self) -> int:
        """Accept different rows from lost units, and forget all later plans.

        Returns how many units were forgotten.
        """
        with self._transaction("redo"):
            found = self._query(
                "SELECT iteration, ordinal FROM lost JOIN units ON key = lost.unit"
                " JOIN stages USING (iteration, stage) ORDER BY iteration, ordinal LIMIT 1"
            )
            self._db.execute("DELETE FROM lost")
            after = (
                "SELECT iteration, stage FROM stages"
                " WHERE iteration > ?1 OR (iteration = ?1 AND ordinal > ?2)"
            )
            return sum(self._forget(self._query(after, first)) for first in found)

    def _forget(self, stages: Sequence[StageId]) -> int:
        """Forget the plans and results of stages; their cost still counts as spent."""
        spent = (
            "SELECT totals FROM stages WHERE iteration = ?1 AND stage = ?2 UNION ALL SELECT r.cost"
            " FROM replies r JOIN units u ON u.key = r.unit"
            " WHERE u.iteration = ?1 AND u.stage = ?2"
        )
        self._abandon(cost for place in stages for (cost,) in self._query(spent, place))
        self._db.executemany(
            "DELETE FROM replies WHERE unit IN"
            " (SELECT key FROM units WHERE iteration = ? AND stage = ?)",
            stages,
        )
        self._db.executemany(
            "DELETE FROM parts WHERE unit IN"
            " (SELECT number FROM units WHERE iteration = ? AND stage = ?)",
            stages,
        )
        self._db.executemany("DELETE FROM files WHERE iteration = ? AND stage = ?", stages)
        before = self._db.total_changes()
        self._db.executemany("DELETE FROM units WHERE iteration = ? AND stage = ?", stages)
        forgotten = self._db.total_changes() - before
        self._db.executemany("DELETE FROM edges WHERE iteration = ? AND stage = ?", stages)
        self._db.executemany("DELETE FROM stages WHERE iteration = ? AND stage = ?", stages)
        return forgotten


def _list_reports(served: Sequence[Mapping[str, Json]]) -> str | None:
    """Return the reports of endpoints in the journal's form: each once, in a fixed order."""
    return (
        f"[{','.join(sorted({canonical_json(dict(report)) for report in served}))}]"
        if served
        else None
    )


def _add_totals(totals: Mapping[str, float], telemetry: Mapping[str, float]) -> dict[str, float]:
    names = {**totals, **telemetry}
    return {name: totals.get(name, 0) + telemetry.get(name, 0) for name in names}
