"""Taking back finished work: units whose rows are damaged, and stages made from other rows."""

from collections.abc import Sequence

from .journal_held import Held
from .journal_reader import Downstream, StageId


class Undoing(Held):
    """The part of a journal's writer that makes units owed again and forgets stages."""

    def lose(self, unit: str) -> None:
        """Make a unit whose rows are damaged owed again; it must give the same rows as before."""
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
        """Take a unit's parts away, and stop counting its rows in the packs that hold them."""
        self._db.execute(
            "UPDATE packs SET live = live - 1 WHERE sha256 IN"
            " (SELECT pack FROM parts JOIN units ON number = unit WHERE key = ?)",
            (unit,),
        )
        self._db.execute("DELETE FROM packs WHERE live = 0")
        self._db.execute(
            "DELETE FROM parts WHERE unit = (SELECT number FROM units WHERE key = ?)", (unit,)
        )

    def forget(self, iteration: int, stage: str) -> Downstream:
        """Forget a stage and the stages made from its rows; their cost stays.

        Stages that only follow a decision made from these rows are kept if the recipe plans them
        with the same inputs, and replaced if it plans them with others.
        """
        with self._transaction("forget"):
            return self._forget_with_downstream(iteration, stage)

    def _forget_with_downstream(self, iteration: int, stage: str) -> Downstream:
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
        """Accept whatever rows lost units give, and forget all that was planned after the first.

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
        return self._forget(
            self._query(
                "SELECT iteration, stage FROM stages"
                " WHERE iteration > ?1 OR (iteration = ?1 AND ordinal > ?2)",
                (iteration, ordinal),
            )
        )

    def _forget(self, stages: Sequence[StageId]) -> int:
        """Forget the plans and results of stages; their cost still counts as spent."""
        self._abandon(
            totals
            for place in stages
            for (totals,) in self._query(
                "SELECT totals FROM stages WHERE iteration = ? AND stage = ?", place
            )
        )
        self._abandon(
            cost
            for place in stages
            for (cost,) in self._query(
                "SELECT r.cost FROM replies r JOIN units u ON u.key = r.unit"
                " WHERE u.iteration = ? AND u.stage = ?",
                place,
            )
        )
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
        self._db.executemany("DELETE FROM packs WHERE iteration = ? AND stage = ?", stages)
        forgotten = self._db.executemany(
            "DELETE FROM units WHERE iteration = ? AND stage = ?", stages
        ).rowcount
        self._db.executemany("DELETE FROM edges WHERE iteration = ? AND stage = ?", stages)
        self._db.executemany("DELETE FROM stages WHERE iteration = ? AND stage = ?", stages)
        return max(forgotten, 0)
