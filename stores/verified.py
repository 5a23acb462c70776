# pyright: basic
"""Encoding tables as Parquet files, and proving that these are unaltered before any row is used.

The SHA-256 of a file's bytes is its name. Equal tables give equal bytes, so a recomputed unit is
recognised by the hash of its rows.

A process hashes a file once, as long as the file looks the same (`sealed.known_sha256`); `forget`
makes it hash all files again, before derivations and exports.

A stage file holds the hashes of its pieces, so that a search hashes only its own. A piece is one
column of one row group. Between the row groups and Parquet's footer, a region that readers of
Parquet ignore, lie the place and hash of each piece and the first and last prompt of each row
group; then the length of that, and one hash over it and all that follows. Files without such hashes
are hashed whole.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .durable import write_file
from .sealed import DamagedError, altered_message, forget_hashes, is_known, known_sha256, look_at

AT_ONCE = min(8, os.cpu_count() or 1)
"""The number of files to hash concurrently: hashing releases the interpreter's lock."""

MAGIC, MARK = b"PAR1", b"lpf1"
NUMBER, DIGEST = 4, 32
END = NUMBER + len(MAGIC)
"""The bytes after Parquet's footer: its length, and the format's name."""
TAIL = 256 * 1024
"""The bytes read of a file's end; a file with a longer footer is hashed whole."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A column of a row group: its place in the file, and its hash."""

    column: str
    first: str
    last: str
    offset: int
    length: int
    sha256: str

    def is_in(self, some: "Some") -> bool:
        """Whether a reader of these columns and prompts needs it."""
        if some.columns is not None and self.column not in some.columns:
            return False
        return some.prompt_id is None or self.first <= some.prompt_id <= self.last

    def agrees(self, handle: int) -> bool:
        """Whether its bytes match its hash."""
        data = os.pread(handle, self.length, self.offset)
        return hashlib.sha256(data).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Some:
    """The pieces to read of a file: some or all columns, and the rows of one prompt or all."""

    columns: frozenset[str] | None = None
    prompt_id: str | None = None

    @classmethod
    def of(cls, columns: Iterable[str] | None) -> "Some":
        """Return the pieces of some columns, or of all."""
        return ALL if columns is None else cls(columns=frozenset(columns))

    def along(self, column: str) -> "Some":
        """Return the same with another column."""
        return self if self.columns is None else replace(self, columns=self.columns | {column})


ALL = Some()


_in_pieces: dict[str, tuple[tuple[int, ...], set[Piece] | None]] = {}
"""A file's attributes, and its pieces that were not verified yet; None without their hashes."""


def verify(files: Iterable[tuple[Path, str]]) -> None:
    """Prove that files have their SHA-256; files that look as when they were hashed are not read.

    Raises:
        DamagedError: naming the first that is missing or altered.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_verify, files))


def verify_some(paths: Sequence[Path], some: Some) -> None:
    """Prove that the needed pieces of files are unaltered; a file without hashes is hashed whole.

    Raises:
        DamagedError: naming the first that is missing or altered.
    """
    found = {path: _pieces_to_verify(path, some) for path in paths}
    needed = {path: pieces for path, pieces in found.items() if pieces}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_verify_pieces, needed, needed.values()))
    verify((path, path.stem) for path, pieces in found.items() if pieces is None)


def forget() -> None:
    """Make every file be hashed again at its next use."""
    forget_hashes()
    _in_pieces.clear()


def _pieces_to_verify(path: Path, some: Some) -> list[Piece] | None:
    """Return the needed pieces that were not verified yet; None: the whole file must be hashed."""
    try:
        look = look_at(path)
    except OSError:
        return None  # Hashing the file gives the error.
    if is_known(look, path.stem):
        return []
    known, pending = _in_pieces.get(str(path), ((), None))
    if known != look:
        _, pending = _in_pieces[str(path)] = look, _read_pieces(path)
    return None if pending is None else [piece for piece in list(pending) if piece.is_in(some)]


def _verify_pieces(path: Path, pieces: Sequence[Piece]) -> None:
    look, pending = _in_pieces[str(path)]
    with path.open("rb", buffering=0) as opened:
        altered = not all(piece.agrees(opened.fileno()) for piece in pieces)
    if altered or look_at(path) != look:
        raise DamagedError(altered_message(path))
    (pending or set()).difference_update(pieces)


def _verify(file: tuple[Path, str]) -> None:
    path, expected = file
    if known_sha256(path) != expected:
        raise DamagedError(altered_message(path))


def with_hashes(data: memoryview, prompt_ids: Sequence[str]) -> bytes:
    """Return the bytes of a Parquet file with the hashes of its pieces, and its rows' prompts."""
    end = len(data) - END - _number(data[-END : -len(MAGIC)])
    groups = json.dumps(list(_groups(data, prompt_ids))).encode()
    rest = data[end:]
    digest = hashlib.sha256(groups)
    digest.update(rest)
    return b"".join(
        (data[:end], groups, len(groups).to_bytes(NUMBER, "little"), digest.digest(), MARK, rest)
    )


def _read_pieces(path: Path) -> set[Piece] | None:
    """Return the pieces of a file, or None if it lacks their hashes, or these are damaged.

    The list of the pieces, and Parquet's footer, are verified.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        tail = os.pread(file.fileno(), TAIL, max(0, size - TAIL))
        listing = _read_list(tail)
        if listing is None or os.pread(file.fileno(), len(MAGIC), 0) != MAGIC:
            return None
    return {
        Piece(column, first, last, offset, length, sha256)
        for group in json.loads(listing)
        for first, last in [group["prompts"]]
        for column, offset, length, sha256 in group["pieces"]
    }


def _read_list(tail: bytes) -> bytes | None:
    """Return the list of the pieces, verified, from the last bytes of a file."""
    mark = len(tail) - END - _number(tail[-END : -len(MAGIC)]) - len(MARK)
    begin = mark - DIGEST - NUMBER
    if begin < 0 or tail[mark : mark + len(MARK)] != MARK:
        return None
    length = _number(tail[begin : begin + NUMBER])
    listing = tail[max(0, begin - length) : begin]
    digest = hashlib.sha256(listing)
    digest.update(tail[mark + len(MARK) :])
    return listing if digest.digest() == tail[begin + NUMBER : mark] else None


def _groups(data: memoryview, prompt_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the first and last prompt of each row group, and its pieces."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    first = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        if not group.num_rows:
            continue  # Readers never need a piece of a file without rows.
        prompts = prompt_ids[first : first + group.num_rows]
        first += group.num_rows
        yield {
            "prompts": [min(prompts), max(prompts)],
            "pieces": [_piece(data, group.column(n)) for n in range(group.num_columns)],
        }


def _piece(data: memoryview, column: Any) -> list[Any]:
    begin = column.dictionary_page_offset or column.data_page_offset
    length = column.total_compressed_size
    sha256 = hashlib.sha256(data[begin : begin + length]).hexdigest()
    return [column.path_in_schema.partition(".")[0], begin, length, sha256]


def _number(data: bytes | memoryview) -> int:
    return int.from_bytes(data, "little")


ENCODERS = 2
ROWS_A_GROUP = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """A table as the bytes of a Parquet file, and their SHA-256."""

    sha256: str
    rows: int
    data: bytes

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.data)


def encode(table: pa.Table, *, rows_a_group: int | None = None) -> EncodedRows:
    """Encode a table, in row groups of the given size."""
    sink = pa.BufferOutputStream()
    pq.write_table(  # noqa: TID251 -- into memory
        table, sink, row_group_size=rows_a_group, compression="zstd", write_page_checksum=True
    )
    return _hash_rows(table, sink.getvalue().to_pybytes())


def encode_tables(tables: Iterable[pa.Table]) -> list[EncodedRows]:
    """Encode tables, some at the same time."""
    with ThreadPoolExecutor(ENCODERS) as pool:
        return list(pool.map(encode, tables))


def encoded_stage(table: pa.Table) -> EncodedRows:
    """Encode the rows of many units, in small row groups whose pieces have hashes."""
    if "prompt_id" not in table.column_names:
        return encode(table)
    data = memoryview(encode(table, rows_a_group=ROWS_A_GROUP).data)
    return _hash_rows(table, with_hashes(data, table["prompt_id"].to_pylist()))


def write_rows(folder: Path, table: pa.Table) -> Path:
    """Write a table as `folder/<sha256>.parquet`, durably; return its path."""
    rows = encode(table)
    path = folder / f"{rows.sha256}.parquet"
    write_file(path, rows.data, "part")
    return path


def _hash_rows(table: pa.Table, data: bytes) -> EncodedRows:
    return EncodedRows(sha256=hashlib.sha256(data).hexdigest(), rows=table.num_rows, data=data)
