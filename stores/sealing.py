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

from .durable import write_file
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
    with ThreadPoolExecutor(AT_ONCE) as pool:
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
