# pyright: basic
"""The committed rows of one table in one state of a run: where they lie, and rows by place.

The place of a row is its number, from 0, in the order of `RunReader.scan`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl

from .journal_reader import RowFile
from .objects import objects_of
from .schemas import SCHEMAS
from .stage_files import CHUNK, add_remedy, scan
from .verified import Some

CLOSE = 500
"""Reading so many rows between two others takes less time than beginning at another place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Consecutive rows of a table, in Parquet files or in a frame; `first` is a place.

    `counts` has the number of rows of each file. If `live` is given, the rows of other chunks
    (column `_chunk`) do not count.
    """

    first: int
    files: Sequence[str] = ()
    counts: Sequence[int] = ()
    live: frozenset[int] | None = None
    frame: pl.LazyFrame | None = None


class TableRows:
    """The rows of a table that some files and blobs hold. `RunReader.table_rows` makes it."""

    def __init__(self, folder: Path, table: str, files: Sequence[RowFile]) -> None:
        self._folder = folder
        self._table = table
        self._files = [file for file in files if file.rows]
        self._objects = objects_of(folder)

    def ranges(self, columns: Collection[str] | None = None) -> list[RowRange]:
        """Return where the rows lie, for an engine that will read some columns or all.

        What it will read of files is verified first.

        Raises:
            DamagedError: if a file was altered.
        """
        paths = [file.path(self._folder) for file in self._files if file.sealed]
        some = None if columns is None else Some(columns=frozenset(columns)).along(CHUNK)
        with add_remedy(self._folder):
            self._objects.verify(paths, some)
        ranges, first = list[RowRange](), 0
        for kind, each in groupby(self._files, key=lambda f: f.sealed and (f.live is None or f)):
            group = list(each)
            counts = [file.rows for file in group]
            if kind:
                files = [str(file.path(self._folder)) for file in group]
                live = group[0].live
                ranges.append(RowRange(first=first, files=files, counts=counts, live=live))
            else:
                ranges.append(RowRange(first=first, frame=self._scan(group)))
            first += sum(counts)
        return ranges or [RowRange(first=0, frame=self._scan([]))]

    def at(self, places: Sequence[int], columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of the rows at these places, in the order of the places.

        Only the files that hold them are opened and verified.

        Raises:
            DamagedError: if one of them was altered.
        """
        ordered = sorted(set(places))
        some = Some(columns=frozenset(columns))
        parts, groups, first = list[pl.LazyFrame](), list[list[int]](), 0
        for file in self._files:
            after = first + file.rows
            here = [place - first for place in ordered if first <= place < after]
            rows = self._scan([file], some) if here else pl.LazyFrame()
            for group in _close_together(here):
                parts.append(rows.slice(group[0], group[-1] - group[0] + 1))
                groups.append([place - group[0] for place in group])
            first = after
        if not parts:
            return pl.Schema(SCHEMAS[self._table]).to_frame().select(columns)
        read = zip(pl.collect_all(parts), groups, strict=True)
        found = pl.concat([part[group] for part, group in read]).select(columns)
        rank = {place: number for number, place in enumerate(ordered)}
        return found[[rank[place] for place in places]]

    def _scan(self, files: Sequence[RowFile], some: Some | None = None) -> pl.LazyFrame:
        return scan(self._folder, self._table, files, some or Some())


def _close_together(places: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of ascending places that are read at once."""
    group = list[int]()
    for place in places:
        if group and place > group[-1] + CLOSE:
            yield group
            group = []
        group.append(place)
    if group:
        yield group
