"""Forking a run: a child under another configuration that re-uses every unit whose key still holds.

A key hashes all that a unit's rows depend on, so the rows of a parent's unit with the same key are
the rows that the child would make. They are linked, not copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ..stores.durable import link
from ..stores.journal import Done
from ..stores.journal_reader import Unit
from ..stores.lake import RunReader, RunWriter, part_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The parent of a run."""

    parent: RunReader

    def adopt(self, store: RunWriter, owed: Sequence[Unit]) -> list[Unit]:
        """Commit what the parent has done of the owed units; return what is still owed."""
        done = [unit for unit in owed if self.parent.journal.is_done(unit.key)]
        for unit in done:
            self._adopt_one(store, unit)
        adopted = {unit.key for unit in done}
        return [unit for unit in owed if unit.key not in adopted]

    def _adopt_one(self, store: RunWriter, unit: Unit) -> None:
        parts = self.parent.journal.parts_of(unit.key)
        for table, part in parts.items():
            source = part_path(self.parent.folder, table, part.sha256)
            if table == "checkpoints":
                self._adopt_checkpoints(store, pl.read_parquet(source))
            link(source, part_path(store.folder, table, part.sha256))
        store.journal.commit([Done(unit=unit.key, parts=parts, telemetry={"adopted": 1})])

    def _adopt_checkpoints(self, store: RunWriter, rows: pl.DataFrame) -> None:
        for path in rows.filter(pl.col("parent_id").is_not_null())["path"]:
            link(self.parent.folder / path, store.folder / path)
