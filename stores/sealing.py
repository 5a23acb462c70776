# pyright: basic
"""Encoding tables as Parquet files; the SHA-256 of a file's bytes is its name.

Equal tables give equal bytes, so a recomputed unit is recognised by the hash of its rows.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .durable import put, sync_folder
from .sealed import HashedFile
from .verified import with_hashes

AT_ONCE = 2
ROWS_A_GROUP = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """A table as the bytes of a Parquet file, and their SHA-256."""

    sha256: str
    rows: int
    data: bytes

    @property
    def file(self) -> HashedFile:
        """The file that has these bytes."""
        return HashedFile(sha256=self.sha256, rows=self.rows, size=len(self.data))


def encode(table: pa.Table, *, rows_a_group: int | None = None) -> EncodedRows:
    """Encode a table, in row groups of the given size."""
    sink = pa.BufferOutputStream()
    pq.write_table(  # noqa: TID251 -- into memory
        table, sink, row_group_size=rows_a_group, compression="zstd", write_page_checksum=True
    )
    return _hash_rows(table, sink.getvalue().to_pybytes())


def encode_tables(tables: Iterable[pa.Table]) -> list[EncodedRows]:
    """Encode tables, some at the same time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(encode, tables))


def encoded_stage(table: pa.Table) -> EncodedRows:
    """Encode the rows of many units, in small row groups whose pieces have hashes."""
    if "prompt_id" not in table.column_names:
        return encode(table)
    data = memoryview(encode(table, rows_a_group=ROWS_A_GROUP).data)
    return _hash_rows(table, with_hashes(data, table["prompt_id"].to_pylist()))


def write_parts(parts: Iterable[tuple[Path, pa.Table]]) -> list[HashedFile]:
    """Write each table as `folder/<sha256>.parquet`; all are durable when this returns.

    Some are written while others are encoded. After an error the same call can be repeated.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        writing = [(folder, pool.submit(_write, folder, table)) for folder, table in parts]
    written = [future.result() for _, future in writing]
    for folder in dict.fromkeys(folder for folder, _ in writing):
        sync_folder(folder, "part")
    return written


def _write(folder: Path, table: pa.Table) -> HashedFile:
    rows = encode(table)
    put(folder / f"{rows.sha256}.parquet", rows.data, "part")
    return rows.file


def _hash_rows(table: pa.Table, data: bytes) -> EncodedRows:
    return EncodedRows(sha256=hashlib.sha256(data).hexdigest(), rows=table.num_rows, data=data)
