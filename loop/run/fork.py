# pyright: basic
"""Forking a run: a child under another configuration that re-uses every unit whose key still holds.

A key hashes all that a unit's rows depend on, so the rows of a parent's unit with the same key are
the rows that the child would make. Weights are linked, not copied.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import polars as pl
import pyarrow as pa

from ...stores.durable import link, make_folder
from ...stores.journal import Done
from ...stores.journal_reader import Unit
from ...stores.lake import CANARIES, RunReader, RunWriter, canary_sha256, remember_canary
from ...stores.objects import objects_of
from ...stores.sealed import DamagedError
from ...stores.stage_files import MODELS, UnitRows, read_trained
from ...stores.verified import encode_tables

AT_ONCE = 64

logger = logging.getLogger("lpfloop.loop")


class Fork:
    """The parent of a run."""

    def __init__(self, parent: RunReader) -> None:
        self.parent = parent
        self._units = UnitRows(parent.journal)
        self._objects = objects_of(parent.folder)

    def reuse(self, store: RunWriter, pending: Sequence[Unit]) -> list[Unit]:
        """Commit the pending units that the parent has finished; return the others.

        Units that are damaged in the parent, or were given up there, stay pending.
        """
        left = list[Unit]()
        for first in range(0, len(pending), AT_ONCE):
            units = pending[first : first + AT_ONCE]
            left += store.when_there_is_room(lambda units=units: self._reuse(store, units))
        return left

    def _reuse(self, store: RunWriter, units: Sequence[Unit]) -> list[Unit]:
        """Commit the units that the parent has, in one transaction; return the others."""
        found = {unit.key: rows for unit in units for rows in self._find_rows(store, unit)}
        tables = [table for rows in found.values() for table in rows.values()]
        again = iter(encode_tables(tables))
        store.journal.commit(
            [
                Done(
                    unit=key,
                    parts=dict(zip(rows, again, strict=False)),
                    telemetry={"reused": 1},
                )
                for key, rows in found.items()
            ]
        )
        return [unit for unit in units if unit.key not in found]

    def _find_rows(self, store: RunWriter, unit: Unit) -> Iterator[Mapping[str, pa.Table]]:
        """Yield the parent's rows of a unit by table, if it has them."""
        if not self.parent.journal.is_done(unit.key):
            return
        parts = self.parent.journal.parts_of(unit.key)
        try:
            for table, part in parts.items():
                if table in MODELS:
                    rows = read_trained(self.parent.journal, part)
                    self.reuse_models(store, rows, MODELS[table])
            yield {table: self._units.read(unit.key, table) for table in parts}
        except DamagedError as damage:
            logger.warning("%s; the fork makes it itself", damage)

    def reuse_models(
        self, store: RunWriter, rows: pl.DataFrame, name_column: str = "checkpoint_id"
    ) -> None:
        """Link the weights of the parent's checkpoints or reward models, and their canaries.

        Raises:
            DamagedError: if weights are missing or altered.
        """
        published = rows.filter(pl.col("parent_id").is_not_null())
        for name, path in published[name_column, "path"].iter_rows():
            link(self._objects.local_folder(self.parent.folder / path), store.folder / path)
            store.publish(store.folder / path)
            canaries = make_folder(store.folder / CANARIES / name)
            for canary in self._objects.sizes(self.parent.folder / CANARIES / name):
                link(self._objects.local_file(canary), canaries / canary.name)
                store.publish(canaries / canary.name)
                known = canary_sha256(self.parent.journal, canary)
                if known is not None:
                    remember_canary(store.journal, canary, known)
