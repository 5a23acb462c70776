# pyright: basic
"""Sealing: a table becomes a Parquet file that is named by the SHA-256 of its bytes.

Equal tables give equal bytes, so a recomputed unit is recognised by the names of its parts.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .durable import put, sync_folder, write_file
from .pack_hashes import with_hashes
from .sealed import PartFile

AT_ONCE = 2
PACK_ROWS_A_GROUP = 8192


def write_parts(parts: Iterable[tuple[Path, pa.Table]]) -> list[PartFile]:
    """Seal each table as `folder/<sha256>.parquet`; all are durable when this returns.

    Some are uploaded or written while others are encoded. After an error the same call can be
    repeated.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        sealing = [(folder, pool.submit(_write_part, folder, table)) for folder, table in parts]
    written = [future.result() for _, future in sealing]
    for folder in dict.fromkeys(folder for folder, _ in sealing):
        sync_folder(folder, "part")
    return written


def write_pack(folder: Path, table: pa.Table) -> PartFile:
    """Seal a table of many units, so that one prompt's rows are found fast."""
    pack, data = sealed_pack(table)
    write_file(folder / f"{pack.sha256}.parquet", data, "pack")
    return pack


def sealed(table: pa.Table, *, rows_a_group: int | None = None) -> tuple[PartFile, memoryview]:
    """Encode a table as Parquet; return its hash and size, and the bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(  # noqa: TID251 -- into memory
        table, sink, row_group_size=rows_a_group, compression="zstd", write_page_checksum=True
    )
    return _named(table, memoryview(sink.getvalue()))


def sealed_pack(table: pa.Table) -> tuple[PartFile, memoryview]:
    """Return a table of many units as the bytes of a file with small, separately hashed groups."""
    _, data = sealed(table, rows_a_group=PACK_ROWS_A_GROUP)
    return _named(table, memoryview(with_hashes(data, table["prompt_id"].to_pylist())))


def _named(table: pa.Table, data: memoryview) -> tuple[PartFile, memoryview]:
    sha256 = hashlib.sha256(data).hexdigest()
    return PartFile(sha256=sha256, rows=table.num_rows, size=len(data)), data


def _write_part(folder: Path, table: pa.Table) -> PartFile:
    part, data = sealed(table)
    put(folder / f"{part.sha256}.parquet", data, "part")
    return part
