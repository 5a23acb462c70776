# pyright: basic
"""The rows of Parquet files, and of the Arrow files that `datasets` saves and caches."""

from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from .file_row import as_row
from .parquet_pages import BATCH, UnboundedError
from .parquet_rows import bounded, parquet_rows
from .text_lines import LONGEST_LINE, InputError, Placed


def table_rows(path: Path, *, arrow: bool) -> Iterator[Placed]:
    """Yield the rows of a Parquet file, or of an Arrow one.

    Raises:
        InputError: for a file or row that cannot be read.
    """
    read = _arrow_rows if arrow else parquet_rows
    try:
        _require_distinct(path, _schema_of(path, arrow=arrow), "the table")
        for number, row in enumerate(read(path, LONGEST_LINE), start=1):
            yield f"row {number}", as_row(row)
    except UnboundedError as error:
        raise InputError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a text in it is not UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        said = str(error).partition("\n")[0]
        kind = "Arrow" if arrow else "Parquet"
        raise InputError(f"{path}: not a readable {kind} file: {said}") from error


def decompressed_by_arrow(file: IO[bytes], form: str) -> BufferedReader:
    """Return the decompressed contents of a file; `form` is zstd or lz4."""
    return BufferedReader(pa.CompressedInputStream(file, form))


def _schema_of(path: Path, *, arrow: bool) -> Any:
    if not arrow:
        return pq.read_schema(path)
    with pa.memory_map(str(path)) as stream, pa.ipc.open_stream(stream) as batches:
        return batches.schema


def _require_distinct(path: Path, fields: Iterable[Any], where: str) -> None:
    """Refuse two columns of one name, also in the objects of a column.

    Raises:
        InputError: naming the column.
    """
    seen = set[str]()
    for field in fields:
        if field.name in seen:
            raise InputError(f"{path}: {where} has the column {field.name!r} twice; keep one")
        seen.add(field.name)
        kind = field.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            inner = [kind.field(n) for n in range(kind.num_fields)]
            _require_distinct(path, inner, f"the objects in {field.name!r}")


def _arrow_rows(path: Path, longest: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a stream of batches: its buffers are mapped, not unpacked."""
    with pa.memory_map(str(path)) as stream, pa.ipc.open_stream(stream) as batches:
        for rows in bounded(_slices(batches), path.stat().st_size, longest):
            yield from rows.to_pylist()


def _slices(batches: pa.RecordBatchStreamReader) -> Iterator[pa.StructArray]:
    """Yield a few rows at a time, like the rows of Parquet."""
    for batch in batches:
        batch.validate(full=True)
        for start in range(0, len(batch), BATCH):
            yield batch.slice(start, BATCH).to_struct_array()
