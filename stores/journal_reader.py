"""Reading a run's journal: what was planned, done and spent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .journal_files import JOURNAL, Files, JournalError, Part, RowFile
from .keys import Json

__all__ = [
    "JOURNAL",
    "Cost",
    "Downstream",
    "JournalError",
    "Part",
    "Reader",
    "RowFile",
    "Serving",
    "StageId",
    "StageState",
    "Unit",
]


StageId = tuple[int, str]
"""A stage, by its iteration and label."""

TWICE = "seconds_twice"
"""The fact that says how much of the stages' time counts for more than one of them."""

_DOWNSTREAM_SQL = """
WITH RECURSIVE found(iteration, stage, decided) AS (
    SELECT iteration, stage, 0 FROM stages WHERE iteration = ?1 AND stage = ?2
    UNION
    SELECT e.iteration, e.stage, found.decided OR e.decides
    FROM found JOIN edges e ON e.from_iteration = found.iteration AND e.from_stage = found.stage
)
SELECT s.iteration, s.stage, min(found.decided) FROM found
JOIN stages s ON s.iteration = found.iteration AND s.stage = found.stage
WHERE (s.iteration, s.stage) != (?1, ?2)
GROUP BY s.iteration, s.stage ORDER BY s.iteration, s.ordinal
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A planned piece of work: one chunk of one stage."""

    key: str
    chunk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """A stage's progress, and the sums of its units' telemetry."""

    iteration: int
    stage: str
    planned: int
    done: int
    seconds: float
    totals: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What an endpoint said of itself (`Done.served`), and for how many units of a stage."""

    iteration: int
    stage: str
    said: Mapping[str, Json]
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What units spend: tokens of all models, requests to the feedback model, US dollars."""

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
        """Return the cost as the journal keeps it."""
        return json.dumps(
            {"tokens": self.tokens, "judge_calls": self.judge_calls, "money": self.money}
        )


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


class Reader(Files):
    """Read access to a run's journal, safe while another process writes."""

    def upstream(self, iteration: int, stage: str) -> list[StageId]:
        """Return the stages from which a stage was planned, as stored with its plan."""
        return self._query(
            "SELECT from_iteration, from_stage FROM edges WHERE iteration = ? AND stage = ?",
            (iteration, stage),
        )

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

    def seconds(self) -> float:
        """Return the wall time of all stages; of those side by side each second counts once."""
        ((total,),) = self._query("SELECT coalesce(sum(seconds), 0) FROM stages")
        return max(0.0, float(total) - float(self.meta(TWICE) or 0))

    def served(self) -> list[Serving]:
        """Return what endpoints said they are, each thing once a stage, in the order of stages."""
        return [
            Serving(iteration=iteration, stage=stage, said=json.loads(said), units=units)
            for iteration, stage, said, units in self._query(
                "SELECT u.iteration, u.stage, each.value, count(*) FROM stages s JOIN units u"
                " ON u.iteration = s.iteration AND u.stage = s.stage, json_each(u.served) each"
                " WHERE u.served IS NOT NULL GROUP BY u.iteration, s.ordinal, each.value"
            )
        ]

    def lost(self) -> list[str]:
        """Return the units whose rows were damaged and are owed again."""
        return [str(unit) for (unit,) in self._query("SELECT DISTINCT unit FROM lost")]

    def spent(self) -> Cost:
        """Return what the run has spent: committed, reserved now, and lost in crashes."""
        costs = [self.meta("abandoned") or "{}"]
        costs += [cost for (cost,) in self._query("SELECT cost FROM reservations")]
        costs += [cost for (cost,) in self._query("SELECT cost FROM replies")]
        costs += [totals for (totals,) in self._query("SELECT totals FROM stages")]
        return sum((read_cost(text) for text in costs), Cost())

    def kept(self) -> dict[str, Cost]:
        """Return the units with replies that are not whole yet, and what these replies cost."""
        found = dict[str, Cost]()
        for unit, text in self._query("SELECT unit, cost FROM replies"):
            found[unit] = found.get(unit, Cost()) + read_cost(text)
        return found

    def replies(self, unit: str) -> list[str]:
        """Return the replies that are kept of a unit, oldest first (`Journal.keep`)."""
        rows = self._query("SELECT replies FROM replies WHERE unit = ? ORDER BY number", (unit,))
        return [str(text) for (text,) in rows]

    def all_units(self) -> list[tuple[Any, ...]]:
        """Return key, iteration, stage, chunk, whether done, rows and telemetry of every unit."""
        return self._query(
            "SELECT u.key, u.iteration, u.stage, u.chunk, u.done,"
            " (SELECT coalesce(sum(rows), 0) FROM parts WHERE unit = u.number), u.telemetry"
            " FROM units u JOIN stages s ON s.iteration = u.iteration AND s.stage = u.stage"
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


def read_cost(text: str) -> Cost:
    """Read a cost from the journal; other sums in it are ignored."""
    found = json.loads(text)
    return Cost(
        tokens=int(found.get("tokens", 0) + found.get("prompt_tokens", 0)),
        judge_calls=int(found.get("judge_calls", 0)),
        money=float(found.get("money", 0.0)),
    )
