"""Forking a run: a child under another configuration that re-uses every unit whose key still holds.

A key hashes all that a unit's rows depend on, so the rows of a parent's unit with the same key are
the rows that the child would make. They are linked, not copied.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ..policies.canary import CANARY
from ..stores.durable import link, make_folder
from ..stores.journal import Done
from ..stores.journal_reader import Unit
from ..stores.lake import CANARIES, RunReader, RunWriter, part_path
from ..stores.sealed import DamagedError, check_part

logger = logging.getLogger("lpfloop.loop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The parent of a run."""

    parent: RunReader

    def adopt(self, store: RunWriter, owed: Sequence[Unit]) -> list[Unit]:
        """Commit what the parent has done of the owed units; return what is still owed.

        What is damaged in the parent, or was given up there, stays owed.
        """
        return [
            unit
            for unit in owed
            if not store.when_there_is_room(lambda unit=unit: self._adopted(store, unit))
        ]

    def _adopted(self, store: RunWriter, unit: Unit) -> bool:
        """Commit the parent's rows of one unit, if it has them; return whether it has."""
        if not self.parent.journal.is_done(unit.key):
            return False
        parts = self.parent.journal.parts_of(unit.key)
        try:
            for table, part in parts.items():
                source = part_path(self.parent.folder, table, part.sha256)
                # A damaged file is damaged under all its names: adopted, it would never heal.
                check_part(source)
                if table == "checkpoints":
                    self._adopt_checkpoints(store, pl.read_parquet(source))
                link(source, part_path(store.folder, table, part.sha256))
        except DamagedError as damage:
            logger.warning("%s; the fork makes it itself", damage)
            return False
        store.journal.commit([Done(unit=unit.key, parts=parts, telemetry={"adopted": 1})])
        return True

    def _adopt_checkpoints(self, store: RunWriter, rows: pl.DataFrame) -> None:
        published = rows.filter(pl.col("parent_id").is_not_null())
        for name, path in published["checkpoint_id", "path"].iter_rows():
            weights = self.parent.folder / path
            if not weights.exists():
                raise DamagedError(f"{weights} is missing")
            link(weights, store.folder / path)
            canary = self.parent.folder / CANARIES / name / CANARY
            if canary.exists():
                link(canary, make_folder(store.folder / CANARIES / name) / CANARY)
