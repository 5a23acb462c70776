# pyright: basic
"""Forking a run: a child under another configuration that re-uses every unit whose key still holds.

A key hashes all that a unit's rows depend on, so the rows of a parent's unit with the same key are
the rows that the child would make. Their files are linked, not copied; rows that the parent keeps
in a pack become parts again.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from ...stores.canaries import CANARIES, canary_sha256, remember_canary
from ...stores.durable import link, make_folder
from ...stores.journal import Done
from ...stores.journal_reader import Part, Unit
from ...stores.lake import RunReader, RunWriter
from ...stores.objects import Objects, objects_of
from ...stores.packs import MODELS, UnitRows, part_folder, path_of, trained
from ...stores.sealed import DamagedError, PartFile

AT_ONCE = 64

logger = logging.getLogger("lpfloop.loop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The parent of a run."""

    parent: RunReader
    _units: UnitRows = field(init=False)
    _objects: Objects = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_units", UnitRows(self.parent.folder))
        object.__setattr__(self, "_objects", objects_of(self.parent.folder))

    def adopt(self, store: RunWriter, owed: Sequence[Unit]) -> list[Unit]:
        """Commit what the parent has done of the owed units; return what is still owed.

        What is damaged in the parent, or was given up there, stays owed.
        """
        left = list[Unit]()
        for first in range(0, len(owed), AT_ONCE):
            units = owed[first : first + AT_ONCE]
            left += store.when_there_is_room(lambda units=units: self._adopt(store, units))
        return left

    def _adopt(self, store: RunWriter, units: Sequence[Unit]) -> list[Unit]:
        """Commit what the parent has of some units, all at once; return those that it has not."""
        with store.journal.publishing:
            found = {unit.key: rows for unit in units for rows in self._found(store, unit)}
            parts = self._published(store, found)
            store.journal.commit(
                [Done(unit=key, parts=parts[key], telemetry={"adopted": 1}) for key in found]
            )
        return [unit for unit in units if unit.key not in found]

    def _found(self, store: RunWriter, unit: Unit) -> Iterator[Mapping[Part, pa.Table | None]]:
        """Give the parent's parts of a unit, if it has them: linked, or with rows from a pack."""
        if not self.parent.journal.is_done(unit.key):
            return
        parts = self.parent.journal.parts_of(unit.key).values()
        try:
            yield {part: self._linked(store, part) for part in parts}
        except DamagedError as damage:
            logger.warning("%s; the fork makes it itself", damage)

    def _linked(self, store: RunWriter, part: Part) -> pa.Table | None:
        if part.pack is not None:
            return self._units.read(part)
        # A damaged file is damaged under all its names: adopted, it would never heal.
        self._units.check(part)
        if part.table in MODELS:
            self.adopt_models(store, trained(self.parent.folder, part), MODELS[part.table])
        source = path_of(self.parent.folder, part)
        self._objects.link(source, part_folder(store.folder, part.table) / source.name)
        return None

    def _published(
        self, store: RunWriter, found: Mapping[str, Mapping[Part, pa.Table | None]]
    ) -> Mapping[str, Mapping[str, PartFile]]:
        """Return the parts of each unit, by table; what came from packs is sealed again."""
        rows = {part: rows for unit in found.values() for part, rows in unit.items()}
        loose = [part for part in rows if rows[part] is not None]
        sealed = objects_of(store.folder).write_parts(
            (part_folder(store.folder, p.table), rows[p]) for p in loose
        )
        again = dict(zip(loose, sealed, strict=True))
        return {
            key: {part.table: again.get(part) or part.file for part in unit}
            for key, unit in found.items()
        }

    def adopt_models(
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
            for canary in self._objects.files(self.parent.folder / CANARIES / name):
                link(self._objects.local_file(canary), canaries / canary.name)
                store.publish(canaries / canary.name)
                known = canary_sha256(self.parent.journal, canary)
                if known is not None:
                    remember_canary(store.journal, canary, known)
