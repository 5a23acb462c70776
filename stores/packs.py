# pyright: basic
"""Packs: the rows of many units in one file, so that a run of millions of units has few files.

A pack holds rows of one table and stage, sorted by prompt so that those of one prompt lie in one
row group. Two more columns, `_chunk` and `_row`, say to which unit a row belongs, and its place
there: the unit's own rows come back in their order, with the bytes of the part that the pack
supersedes.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path, PurePath

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from .address import run_argument
from .journal_reader import Part, Reader, RowFile
from .objects import objects_of
from .pack_hashes import ALL, Some
from .schemas import SCHEMAS
from .sealed import DamagedError
from .verified import forget

CHUNK, ROW, PATH = "_chunk", "_row", "_path"
PACKED = frozenset(name for name, schema in SCHEMAS.items() if "prompt_id" in schema.names)
"""The tables that are packed; the others are small, and some are opened by path."""
MODELS: Mapping[str, str] = {"checkpoints": "checkpoint_id", "reward_models": "reward_model_id"}
"""The tables whose rows describe published models, and the column with a model's name.

The models lie in the run's folder of the same name.
"""
REMEDY = "says what is lost and makes it owed again"
_PLACE = b"lpfloop.pack"
_Schema = Mapping[str, pl.DataType]


def part_folder(folder: Path, table: str) -> Path:
    """Return the folder of a table's parts."""
    return folder / "parts" / table


def pack_folder(folder: Path, table: str) -> Path:
    """Return the folder of a table's packs."""
    return folder / "packs" / table


def file_path(folder: Path, file: RowFile) -> Path:
    """Return where a file of rows lies."""
    place = pack_folder if file.packed else part_folder
    return place(folder, file.table) / f"{file.sha256}.parquet"


def path_of(folder: Path, part: Part) -> Path:
    """Return the file that holds a unit's rows: its own, or a pack."""
    if part.pack is None:
        return part_folder(folder, part.table) / f"{part.sha256}.parquet"
    return pack_folder(folder, part.table) / f"{part.pack}.parquet"


def packed_table(parts: Sequence[Part], tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of units of one stage as one pack; the tables must have one schema."""
    marked = [
        table.append_column(CHUNK, pa.array([part.chunk] * len(table), pa.int32())).append_column(
            ROW, pa.array(range(len(table)), pa.int32())
        )
        for part, table in zip(parts, tables, strict=True)
    ]
    whole = _sorted(pa.concat_tables(marked), "prompt_id", CHUNK, ROW)
    place = f"{parts[0].iteration} {parts[0].stage}".encode()
    metadata = {**(tables[0].schema.metadata or {}), _PLACE: place}
    return whole.replace_schema_metadata(metadata)


def by_unit(pack: pa.Table) -> pa.Table:
    """Return the rows of a pack by unit, each in its own order."""
    return _sorted(pack, CHUNK, ROW)


def _sorted(table: pa.Table, *columns: str) -> pa.Table:
    # `Table.sort_by` would run on Arrow's threads and wait for them.
    keys = [(name, "ascending") for name in columns]
    order = pc.call_function("sort_indices", [table], pc.SortOptions(keys))
    return table.take(order).combine_chunks()


def without_places(pack: pa.Table, table: str) -> pa.Table:
    """Return rows of a pack with the columns and the schema of its parts."""
    metadata = {key: value for key, value in pack.schema.metadata.items() if key != _PLACE}
    rows = pack.drop_columns([CHUNK, ROW])
    # Parquet renames the items of lists; casting restores the schema's names.
    fields = [SCHEMAS[table].field(name) for name in rows.column_names]
    return rows.cast(pa.schema(fields, metadata=metadata))


def committed(
    journal: Reader,
    *,
    table: str | None = None,
    stages: Callable[[str], bool] = lambda _: True,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the table and the rows of each file of committed rows, its bytes verified.

    Files of other `stages` are not read.

    Raises:
        DamagedError: if one is missing or altered.
    """
    files = [file for file in journal.files(table=table) if stages(file.stage)]
    places = [(file_path(journal.folder, file), file.size) for file in files]
    read = objects_of(journal.folder).read_parts(places)
    for file in files:
        with remedied(journal.folder):
            rows = next(read)
        if file.live is not None:
            live = pc.SetLookupOptions(pa.array(file.live, pa.int32()))
            rows = rows.filter(pc.call_function("is_in", [rows[CHUNK]], live))
        yield file.table, without_places(rows, file.table) if file.packed else rows


def require_unaltered(journal: Reader) -> None:
    """Prove that all committed rows of a run are as they were committed, by hashing them now.

    Raises:
        DamagedError: naming the first file that is missing or altered.
    """
    forget()
    files = [file_path(journal.folder, file) for file in journal.files()]
    with remedied(journal.folder):
        objects_of(journal.folder).verify(files)


def scan(folder: Path, table: str, files: Sequence[RowFile], some: Some = ALL) -> pl.LazyFrame:
    """Return the rows of files as a lazy frame with exactly the columns of their table.

    With `some`, the frame has only these columns, and the rows of this prompt: of packs, only the
    row groups that may hold it are read.
    """
    empty = pl.Schema(SCHEMAS[table]).to_frame()
    empty = empty if some.columns is None else empty.select(*sorted(some.columns))
    full = [file for file in files if file.rows]
    whole = [file_path(folder, file) for file in full if file.live is None]
    frames = [_scanned(folder, whole, empty.schema, some)] if whole else []
    for file in full:
        if file.live is not None:
            path, schema = file_path(folder, file), {**empty.schema, CHUNK: pl.Int32()}
            lazy = _scanned(folder, [path], schema, some.along(CHUNK))
            frames.append(lazy.filter(pl.col(CHUNK).is_in(sorted(file.live))).drop(CHUNK))
    rows = pl.concat(frames) if frames else empty.lazy()
    return rows if some.prompt_id is None else rows.filter(pl.col("prompt_id") == some.prompt_id)


def holding(
    folder: Path, tables: Sequence[Sequence[RowFile]], prompt_id: str
) -> list[list[RowFile]]:
    """Return, for each table, its files that have rows of a prompt.

    It reads one column, at a tenth of the cost of a filter, which reads nested columns, too.
    """
    some = Some(columns=frozenset({"prompt_id"}), prompt_id=prompt_id)
    asked = [
        _scanned(folder, paths, {"prompt_id": pl.String()}, some, path_column=PATH)
        .filter(pl.col("prompt_id") == prompt_id)
        .select(pl.col(PATH).unique())
        for files in tables
        if (paths := [file_path(folder, file) for file in files if file.rows])
    ]
    hashes = {PurePath(path).stem for found in pl.collect_all(asked) for path in found[PATH]}
    return [[file for file in files if file.sha256 in hashes] for files in tables]


def scan_parts(folder: Path, table: str, parts: Sequence[Part]) -> pl.LazyFrame:
    """Return the rows of parts of a table, in the order of `parts` (in a pack: by chunk)."""
    empty = pl.Schema(SCHEMAS[table]).to_frame()
    full = (part for part in parts if part.rows)
    frames = [
        _of_pack(folder, list(group), empty.schema)
        if pack
        else _scanned(folder, [path_of(folder, part) for part in group], empty.schema)
        for pack, group in groupby(full, key=lambda part: part.pack)
    ]
    return pl.concat(frames) if frames else empty.lazy()


def _of_pack(folder: Path, parts: Sequence[Part], schema: _Schema) -> pl.LazyFrame:
    """Return the rows of units in one pack, by chunk."""
    places = {CHUNK: pl.Int32(), ROW: pl.Int32()}
    rows = _scanned(folder, [path_of(folder, parts[0])], {**schema, **places})
    wanted = pl.col(CHUNK).is_in([part.chunk for part in parts])
    return rows.filter(wanted).sort(CHUNK, ROW).drop(CHUNK, ROW)


def _scanned(
    folder: Path,
    paths: Sequence[Path],
    schema: _Schema,
    some: Some = ALL,
    *,
    path_column: str | None = None,
) -> pl.LazyFrame:
    with remedied(folder):
        return objects_of(folder).scan(
            paths,
            None if some == ALL else some,
            schema=dict(schema),
            missing_columns="insert",
            extra_columns="ignore",
            include_file_paths=path_column,
            glob=False,
        )


@contextmanager
def remedied(folder: Path) -> Generator[None]:
    """Add to the message on damage what a reader of the run can do."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(
            f"{error}; `lpfloop lake repair {run_argument(folder)}` {REMEDY}"
        ) from error


def trained(folder: Path, part: Part) -> pl.DataFrame:
    """Return a part's rows whose models were published in this run, its bytes verified.

    Raises:
        DamagedError: if the file is missing or altered.
    """
    rows = pl.DataFrame(UnitRows(folder).read(part))
    return rows.filter(pl.col("parent_id").is_not_null())


class UnitRows:
    """Reads the rows of units; of each table, the pack that was read last is cached."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects = objects_of(folder)
        self._packs: dict[str, tuple[str, pa.Table]] = {}
        self._damaged: dict[str, DamagedError] = {}

    def read(self, part: Part) -> pa.Table:
        """Return a unit's rows as its part has them, the bytes of the file verified.

        Raises:
            DamagedError: if the file is missing or altered.
        """
        path = path_of(self._folder, part)
        if part.pack is None:
            return self._objects.read_part(path, part.sha256)
        pack = self._pack(part.table, part.pack, path)
        chunks = pack[CHUNK].combine_chunks().to_numpy(zero_copy_only=False)
        first, last = (int(chunks.searchsorted(part.chunk, side)) for side in ("left", "right"))
        if last - first != part.rows:
            raise DamagedError(f"{path} has {last - first} rows of a unit instead of {part.rows}")
        return without_places(pack.slice(first, last - first), part.table)

    def check(self, part: Part) -> None:
        """Prove that the file that holds a unit's rows is unaltered.

        Raises:
            DamagedError: if it is missing or altered.
        """
        self._objects.check_part(path_of(self._folder, part))

    def _pack(self, table: str, sha256: str, path: Path) -> pa.Table:
        kept = self._packs.get(table)
        if kept is not None and kept[0] == sha256:
            return kept[1]
        if sha256 in self._damaged:
            raise self._damaged[sha256]
        try:
            pack = by_unit(self._objects.read_part(path, sha256))
        except DamagedError as error:
            self._damaged[sha256] = error
            raise
        self._packs[table] = (sha256, pack)
        return pack
