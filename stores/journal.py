"""The journal of a run: what was planned, decided and done, in SQLite, written by one process.

A unit of work is planned once, under a key that hashes everything its result depends on, and done
once: the transaction that marks it done also names the parts that hold its rows, so a row is
visible if and only if its part is in the journal. One process writes (a file lock for life, and an
epoch as a fence against a holder that was suspended and overtaken); everyone else reads.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .address import run_argument
from .journal_reader import TWICE, Cost, Downstream, JournalError, Part, StageId
from .journal_undoing import Undoing
from .keys import Json, canonical_json
from .lock import FencedError
from .sealed import PartFile

__all__ = [
    "AMENDED",
    "ContradictionError",
    "Done",
    "FencedError",
    "Journal",
    "KeptSlice",
]

AMENDED = "amended"
"""The kind of the event that records a unit's replacement."""


class ContradictionError(JournalError):
    """A damaged unit that was computed again gave different rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A unit's result: the parts that hold its rows, and telemetry, which is summed by stage.

    `served` is what the endpoints that answered say of themselves, once each: the model, its
    fingerprint. It is no part of the digest.
    """

    unit: str
    parts: Mapping[str, PartFile]
    telemetry: Mapping[str, float]
    served: Sequence[Mapping[str, Json]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSlice:
    """A slice's replies, kept until its unit is whole, and what they cost.

    `replies` is opaque to the journal; whoever resumes the unit reads it back.
    """

    unit: str
    slice_: str
    cost: Cost
    replies: str


class Journal(Undoing):
    """The one writer of a run's journal; its methods may be called from several threads."""

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

        `identity` hashes what the stage computes and from which stages. A stage planned before
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
        if not found:
            return self._insert_plan(iteration, stage, identity, keys(), upstream, decided_by)
        ((planned_as, count, replaceable),) = found
        if replaceable and planned_as == identity:
            with self._transaction("plan"):
                self._db.execute(
                    "UPDATE stages SET replaceable = 0 WHERE iteration = ? AND stage = ?",
                    (iteration, stage),
                )
        elif replaceable:
            self.forget(iteration, stage)
            return self._insert_plan(iteration, stage, identity, keys(), upstream, decided_by)
        if planned_as != identity:
            raise JournalError(
                f"stage {stage} of iteration {iteration} was planned with other inputs; "
                f"the run's data or code changed: start another run with --run NAME --fork "
                f"{self.folder.name}, which re-uses what still holds"
            )
        return int(count)

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

    def commit(self, results: Sequence[Done]) -> None:
        """Mark units done and make their parts visible, all at once; what was done stays.

        Raises:
            ContradictionError: if a unit whose rows were lost gave different rows.
        """
        with self._transaction("commit"):
            self._commit_all(results)

    def _commit_all(self, results: Sequence[Done]) -> None:
        done = dict[tuple[int, str], list[Done]]()
        parts = list[tuple[int, str, str, int, int]]()
        for result in results:
            changed = self._db.execute(
                "UPDATE units SET done = 1, telemetry = ?, served = ? WHERE key = ? AND NOT done"
                " RETURNING number, iteration, stage",
                (json.dumps(dict(result.telemetry)), _listed(result.served), result.unit),
            ).fetchall()
            for number, *stage in changed:
                done.setdefault(tuple(stage), []).append(result)
                parts += ((number, t, p.sha256, p.rows, p.size) for t, p in result.parts.items())
        settled = [result for stage in done.values() for result in stage]
        self._settle_losses(settled)
        self._db.executemany(
            'INSERT INTO parts (unit, "table", sha256, rows, size) VALUES (?, ?, ?, ?, ?)', parts
        )
        units = [(result.unit,) for result in settled]
        self._db.executemany("DELETE FROM reservations WHERE unit = ?", units)
        self._db.executemany("DELETE FROM replies WHERE unit = ?", units)
        for stage, its in done.items():
            self._count(*stage, its)

    def _count(self, iteration: int, stage: str, done: Sequence[Done]) -> None:
        """Count units among those of their stage that are done."""
        ((text,),) = self._query(
            "SELECT totals FROM stages WHERE iteration = ? AND stage = ?", (iteration, stage)
        )
        totals: dict[str, float] = json.loads(text)
        for result in done:
            totals = _added(totals, result.telemetry)
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
        """Replace what a done unit committed by a result under another key, which adds to it.

        The result's telemetry is its cost beyond the unit's. What was made from the unit's stage
        is forgotten as by `forget`; return the stages that depend on it. An event `amended` keeps
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
            whole = _added(json.loads(telemetry), result.telemetry)
            self._db.execute(
                "UPDATE units SET telemetry = ?, served = ? WHERE key = ?",
                (
                    json.dumps(whole),
                    _listed([*json.loads(served or "[]"), *result.served]),
                    result.unit,
                ),
            )
            detail = {"unit": result.unit, "before": unit, **why}
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?)", (time.time(), AMENDED, json.dumps(detail))
            )
        return downstream

    def _settle_losses(self, results: Sequence[Done]) -> None:
        if self._query("SELECT 1 FROM lost LIMIT 1"):
            for result in results:
                self._settle_loss(result)

    def _settle_loss(self, result: Done) -> None:
        for table, sha256 in self._query(
            'SELECT "table", sha256 FROM lost WHERE unit = ?', (result.unit,)
        ):
            if table not in result.parts or result.parts[table].sha256 != sha256:
                raise ContradictionError(
                    f"unit {result.unit} was damaged, and computed again it gives other "
                    f"{table} than those from which later stages were made; "
                    f"`lpfloop lake repair {run_argument(self.folder)} --redo` keeps the new ones "
                    "and plans "
                    "everything after them again"
                )
        self._db.execute("DELETE FROM lost WHERE unit = ?", (result.unit,))

    def pack(self, pack: PartFile, parts: Sequence[Part]) -> None:
        """Replace parts of one stage and table, in the order of their chunks, by a pack.

        Raises:
            JournalError: if one of them was lost meanwhile; nothing is changed then.
        """
        first = parts[0]
        with self._transaction("pack"):
            self._db.execute(
                'INSERT INTO packs (sha256, "table", iteration, stage, chunk, units, live, rows,'
                " size) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8)",
                (
                    *(pack.sha256, first.table, first.iteration, first.stage, first.chunk),
                    *(len(parts), pack.rows, pack.size),
                ),
            )
            changed = self._db.executemany(
                "UPDATE parts SET pack = ? WHERE unit = (SELECT number FROM units WHERE key = ?)"
                ' AND "table" = ? AND sha256 = ? AND pack IS NULL',
                [(pack.sha256, part.unit, part.table, part.sha256) for part in parts],
            ).rowcount
            if changed != len(parts):
                raise JournalError(f"{len(parts) - changed} of {len(parts)} parts are gone")

    def reserve(self, unit: str, cost: Cost, *, slice_: str = "") -> None:
        """Note what a unit, or a slice of its requests, may spend before it is spent.

        `keep` settles the account of a slice, `commit` that of a unit.
        """
        with self._transaction("reserve"):
            self._db.execute(
                "INSERT OR REPLACE INTO reservations VALUES (?, ?, ?)",
                (unit, slice_, cost.as_json()),
            )

    def keep(self, slices: Sequence[KeptSlice]) -> None:
        """Keep slices' replies, all at once, in the place of what was reserved for them."""
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
        """Add wall time (seconds) spent on a stage, `twice` of it beside others: telemetry."""
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


def _listed(served: Sequence[Mapping[str, Json]]) -> str | None:
    """Return what endpoints said as the journal keeps it: each thing once, in one order."""
    return (
        f"[{','.join(sorted({canonical_json(dict(said)) for said in served}))}]" if served else None
    )


def _added(totals: Mapping[str, float], telemetry: Mapping[str, float]) -> dict[str, float]:
    names = {**totals, **telemetry}
    return {name: totals.get(name, 0) + telemetry.get(name, 0) for name in names}
