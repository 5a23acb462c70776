# pyright: basic
"""The storage of a run's committed rows: in the journal, then in one file per stage and table.

A unit's rows are a Parquet blob in the journal until their stage is finished, or until they are
many. Then they move into a stage file: rows of one table and stage. A file of several row groups
is sorted by prompt, so that the rows of one prompt are in one group. Two more columns, `_chunk` and
`_row`, hold the unit of a row and its place there: the unit's own rows come back in their order,
with the bytes of their blob.

A file is whole and durable before the journal names it and drops the blobs: a kill at any point
loses nothing.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath

import polars as pl
import pyarrow as pa

from .address import run_argument
from .failpoints import reach
from .frames import empty_frame
from .journal import Journal
from .journal_reader import FILES, JournalError, Part, Reader, RowFile, file_path
from .objects import objects_of
from .schemas import SCHEMAS
from .sealed import DamagedError, parse_rows
from .verified import ALL, ROWS_A_GROUP, Some, forget

CHUNK, ROW, PATH = "_chunk", "_row", "_path"
ROWS, SIZE = 128 * 1024, 32 * 2**20
"""The most rows, and bytes of blobs, in a file, because it is built in memory."""
MODELS: Mapping[str, str] = {"checkpoints": "checkpoint_id", "reward_models": "reward_model_id"}
"""The tables whose rows describe published models, and the column with a model's name.

The models are in the run's folder of the same name.
"""
REMEDY = "says what is lost and makes it pending again"
_PLACE = b"lpfloop.stage"
_Schema = Mapping[str, pl.DataType]


def seal_stage(journal: Journal, iteration: int, stage: str, *, finished: bool) -> None:
    """Move the rows of a stage from the journal into files, at most `ROWS` into each.

    Of an unfinished stage, only as many rows as fill a file.

    Raises:
        JournalError: if rows were lost meanwhile; they stay in the journal then.
    """
    parts = journal.unsealed_parts(iteration, stage)
    for table in dict.fromkeys(part.table for part in parts):
        for group in _groups([part for part in parts if part.table == table], finished=finished):
            reach("lake.seal")
            rows = _join(group, [blob_of(journal, part) for part in group])
            folder = journal.folder / FILES / table
            journal.seal(objects_of(journal.folder).write_stage_file(folder, rows), group)


def _groups(parts: Sequence[Part], *, finished: bool) -> Iterator[list[Part]]:
    """Yield the parts of one file at a time."""
    group, rows, size = list[Part](), 0, 0
    for part in parts:
        if group and (rows + part.rows > ROWS or size + part.size > SIZE):
            yield group
            group, rows, size = [], 0, 0
        group.append(part)
        rows, size = rows + part.rows, size + part.size
    if finished and group:
        yield group


def blob_of(journal: Reader, part: Part) -> pa.Table:
    """Return a unit's rows that are in the journal.

    Raises:
        JournalError: if they are not there.
    """
    found = journal.part(part.unit, part.table)
    if found is None or found[1] is None:
        raise JournalError(f"the {part.table} of unit {part.unit} are not in the journal")
    return parse_rows(found[1])


def _join(parts: Sequence[Part], tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of units of one stage in the form of a stage file."""
    marked = [
        table.append_column(CHUNK, pa.array([part.chunk] * len(table), pa.int32())).append_column(
            ROW, pa.array(range(len(table)), pa.int32())
        )
        for part, table in zip(parts, tables, strict=True)
    ]
    first, names = parts[0], tables[0].column_names
    # Within one row group sorting by prompt would only lose the order in which rows were made.
    several = sum(part.rows for part in parts) > ROWS_A_GROUP
    order = ["prompt_id"] if several and "prompt_id" in names else []
    # The chunk and row also distinguish files without rows.
    place = f"{first.iteration} {first.stage} {first.chunk}".encode()
    metadata = {**(tables[0].schema.metadata or {}), _PLACE: place}
    return _sort(pa.concat_tables(marked), *order, CHUNK, ROW).replace_schema_metadata(metadata)


def _sort(table: pa.Table, *columns: str) -> pa.Table:
    import pyarrow.compute as pc

    # `Table.sort_by` would run on Arrow's threads and wait for them.
    keys = [(name, "ascending") for name in columns]
    order = pc.call_function("sort_indices", [table], pc.SortOptions(keys))
    return table.take(order).combine_chunks()


def _without_places(rows: pa.Table, table: str) -> pa.Table:
    """Return rows of a stage file with the columns and the schema of their table."""
    return rows.drop_columns([CHUNK, ROW]).cast(SCHEMAS[table])


def read_committed(
    journal: Reader,
    *,
    table: str | None = None,
    stages: Callable[[str], bool] = lambda _: True,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield tables with committed rows of a table, or of all; the bytes are verified.

    Rows of other `stages` are not read.

    Raises:
        DamagedError: if a file is missing or altered.
    """
    import pyarrow.compute as pc

    files = [file for file in journal.files(table=table, data=True) if stages(file.stage)]
    objects = objects_of(journal.folder)
    with add_remedy(journal.folder):
        objects.bring([file.path(journal.folder) for file in files if file.sealed])
    for file in files:
        if file.data is not None:
            yield file.table, parse_rows(file.data)
            continue
        with add_remedy(journal.folder):
            rows = objects.read_part(file.path(journal.folder))
        if file.live is not None:
            live = pc.SetLookupOptions(pa.array(file.live, pa.int32()))
            rows = rows.filter(pc.call_function("is_in", [rows[CHUNK]], live))
        yield file.table, _without_places(rows, file.table)


def require_unaltered(journal: Reader) -> None:
    """Prove that all committed rows of a run are as they were committed, by hashing them now.

    Raises:
        DamagedError: naming the first file that is missing or altered.
    """
    forget()
    files = [file.path(journal.folder) for file in journal.files() if file.sealed]
    with add_remedy(journal.folder):
        objects_of(journal.folder).verify(files)


def scan(folder: Path, table: str, files: Sequence[RowFile], some: Some = ALL) -> pl.LazyFrame:
    """Return rows of a table as a lazy frame with exactly its columns; blobs have their `data`.

    With `some`, the frame has only these columns, and the rows of this prompt: of files, only the
    row groups that may hold it are read.
    """
    empty = empty_frame(table)
    empty = empty if some.columns is None else empty.select(*sorted(some.columns))
    frames = list[pl.LazyFrame]()
    for group in _read_together(file for file in files if file.rows):
        paths, live = [file.path(folder) for file in group], group[0].live
        if not group[0].sealed:
            frames.append(_blob_rows([file.data for file in group], empty))
        elif live is None:
            frames.append(_scan(folder, paths, empty.schema, some))
        else:
            schema = {**empty.schema, CHUNK: pl.Int32()}
            lazy = _scan(folder, paths, schema, some.along(CHUNK))
            frames.append(lazy.filter(pl.col(CHUNK).is_in(sorted(live))).drop(CHUNK))
    rows = pl.concat(frames) if frames else empty.lazy()
    return rows if some.prompt_id is None else rows.filter(pl.col("prompt_id") == some.prompt_id)


def _read_together(files: Iterable[RowFile]) -> Iterator[list[RowFile]]:
    """Yield successive blobs, or files that count wholly, together; any other file alone."""
    for _, group in groupby(files, key=lambda file: file.sealed and (file.live is None or file)):
        yield list(group)


def _blob_rows(blobs: Iterable[bytes | None], empty: pl.DataFrame) -> pl.LazyFrame:
    """Return the rows in blobs, with the columns of `empty`."""
    rows = pa.concat_tables([parse_rows(data or b"") for data in blobs])
    return pl.DataFrame(rows).select(*empty.columns).lazy()


def holding(
    folder: Path, tables: Sequence[Sequence[RowFile]], prompt_id: str
) -> list[list[RowFile]]:
    """Return, for each table, its files that have rows of a prompt, and all its blobs.

    It reads one column, at a tenth of the cost of a filter, which reads nested columns, too.
    """
    some = Some(columns=frozenset({"prompt_id"}), prompt_id=prompt_id)
    places = [[f.path(folder) for f in files if f.rows and f.sealed] for files in tables]
    conditions = [
        _scan(folder, paths, {"prompt_id": pl.String()}, some, path_column=PATH)
        .filter(pl.col("prompt_id") == prompt_id)
        .select(pl.col(PATH).unique())
        for paths in places
        if paths
    ]
    hashes = {PurePath(path).stem for found in pl.collect_all(conditions) for path in found[PATH]}
    return [[f for f in files if not f.sealed or f.sha256 in hashes] for files in tables]


def scan_parts(journal: Reader, table: str, parts: Sequence[Part]) -> pl.LazyFrame:
    """Return the rows of parts of a table, in the order of `parts` (in a file: by chunk)."""
    empty = empty_frame(table)
    with journal.snapshot():
        found = [journal.part(part.unit, table) for part in parts if part.rows]
    present = [each for each in found if each is not None]
    frames = list[pl.LazyFrame]()
    for file, each in groupby(present, key=lambda found: found[0].file):
        group = list(each)
        if file is None:
            frames.append(_blob_rows([data for _, data in group], empty))
        else:
            path = file_path(journal.folder, table, file)
            places = {CHUNK: pl.Int32(), ROW: pl.Int32()}
            rows = _scan(journal.folder, [path], {**empty.schema, **places})
            in_group = pl.col(CHUNK).is_in([part.chunk for part, _ in group])
            frames.append(rows.filter(in_group).sort(CHUNK, ROW).drop(CHUNK, ROW))
    return pl.concat(frames) if frames else empty.lazy()


def _scan(
    folder: Path,
    paths: Sequence[Path],
    schema: _Schema,
    some: Some = ALL,
    *,
    path_column: str | None = None,
) -> pl.LazyFrame:
    with add_remedy(folder):
        return objects_of(folder).scan(
            paths,
            some,
            schema=dict(schema),
            missing_columns="insert",
            extra_columns="ignore",
            include_file_paths=path_column,
            glob=False,
        )


@contextmanager
def add_remedy(folder: Path) -> Generator[None]:
    """Add the remedy to the message on damage, for readers of the run."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(
            f"{error}; `lpfloop lake repair {run_argument(folder)}` {REMEDY}"
        ) from error


def read_trained(journal: Reader, part: Part) -> pl.DataFrame:
    """Return a part's rows whose models were published in this run, the bytes verified.

    Raises:
        DamagedError: if a file is missing or altered.
    """
    rows = pl.DataFrame(UnitRows(journal).read(part.unit, part.table))
    return rows.filter(pl.col("parent_id").is_not_null())


class UnitRows:
    """Reads the rows of units; of each table, the file that was read last is cached.

    A damaged file is hashed once, however many units it has, until `forget`.

    Parquet renames the items of lists; casting restores the schema's names, and so the bytes.
    """

    def __init__(self, journal: Reader) -> None:
        self._journal = journal
        self._objects = objects_of(journal.folder)
        self._files: dict[str, tuple[str, pa.Table]] = {}
        self._damaged: dict[str, DamagedError] = {}

    def read(self, unit: str, table: str) -> pa.Table:
        """Return a unit's rows as they were committed, the bytes verified.

        Raises:
            JournalError: if the unit has not committed rows of that table.
            DamagedError: if the file that holds them is missing or altered.
        """
        found = self._journal.part(unit, table)
        if found is None:
            raise JournalError(f"unit {unit} has committed no {table}")
        part, data = found
        if part.file is None:
            return parse_rows(data or b"").cast(SCHEMAS[table])
        path = file_path(self._journal.folder, table, part.file)
        file = self._file(table, part.file, path)
        chunks = file[CHUNK].combine_chunks().to_numpy(zero_copy_only=False)
        first, last = (int(chunks.searchsorted(part.chunk, side)) for side in ("left", "right"))
        if last - first != part.rows:
            raise DamagedError(f"{path} has {last - first} rows of a unit instead of {part.rows}")
        return _without_places(file.slice(first, last - first), table)

    def forget(self, sha256: str) -> None:
        """Read a damaged file again: the same rows, made again, have the same name."""
        self._damaged.pop(sha256, None)

    def _file(self, table: str, sha256: str, path: Path) -> pa.Table:
        kept = self._files.get(table)
        if kept is not None and kept[0] == sha256:
            return kept[1]
        if sha256 in self._damaged:
            raise self._damaged[sha256]
        try:
            rows = _sort(self._objects.read_part(path), CHUNK, ROW)
        except DamagedError as error:
            self._damaged[sha256] = error
            raise
        self._files[table] = (sha256, rows)
        return rows


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

        The bytes that the engine will read are verified first.

        Raises:
            DamagedError: if a file was altered.
        """
        paths = [file.path(self._folder) for file in self._files if file.sealed]
        with add_remedy(self._folder):
            self._objects.verify(paths, Some.of(columns).along(CHUNK))
        ranges, first = list[RowRange](), 0
        for group in _read_together(self._files):
            counts = [file.rows for file in group]
            if group[0].sealed:
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
        some = Some.of(columns)
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
            return empty_frame(self._table).select(columns)
        read = zip(pl.collect_all(parts), groups, strict=True)
        found = pl.concat([part[group] for part, group in read]).select(columns)
        rank = {place: number for number, place in enumerate(ordered)}
        return found[[rank[place] for place in places]]

    def _scan(self, files: Sequence[RowFile], some: Some = ALL) -> pl.LazyFrame:
        return scan(self._folder, self._table, files, some)


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
