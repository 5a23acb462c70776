# pyright: basic
"""Encoding tables as Parquet files; the SHA-256 of a file's bytes is its name.

Equal tables give equal bytes, so a recomputed unit is recognised by the hash of its rows.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .durable import write_file
from .verified import with_hashes

ROWS_A_GROUP = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """A table as the bytes of a Parquet file, and their SHA-256."""

    sha256: str
    rows: int
    data: bytes | memoryview

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.data)


def encode(table: pa.Table) -> EncodedRows:
    """Encode the rows of a unit, in the least time.

    Dictionaries and statistics would only help readers of some of its rows.
    """
    return _encode(table, use_dictionary=False, write_statistics=False)


def encoded_stage(table: pa.Table) -> EncodedRows:
    """Encode the rows of many units, in small row groups whose pieces have hashes."""
    if "prompt_id" not in table.column_names:
        return _encode(table, write_page_checksum=True)
    rows = _encode(table, row_group_size=ROWS_A_GROUP, write_page_checksum=True)
    return _hash_rows(table, with_hashes(memoryview(rows.data), table["prompt_id"].to_pylist()))


def write_rows(folder: Path, table: pa.Table) -> Path:
    """Write a table as `folder/<sha256>.parquet`, durably; return its path."""
    rows = encode(table)
    path = folder / f"{rows.sha256}.parquet"
    write_file(path, rows.data, "part")
    return path


def _encode(table: pa.Table, **options: Any) -> EncodedRows:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", **options)  # noqa: TID251 -- into memory
    return _hash_rows(table, memoryview(sink.getvalue()).cast("B"))


def _hash_rows(table: pa.Table, data: bytes | memoryview) -> EncodedRows:
    return EncodedRows(sha256=hashlib.sha256(data).hexdigest(), rows=table.num_rows, data=data)
