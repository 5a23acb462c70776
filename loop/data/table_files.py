# pyright: basic
"""The rows of Parquet files, and of the Arrow files that `datasets` saves and caches.

A few hundred bytes of Parquet can unpack to gigabytes. So a file is refused whose footer announces
far more than its size, and texts are read as dictionaries: one that the file contains once is in
memory once, for any number of rows, and each batch is measured before its rows are made.
"""

from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .file_row import as_row
from .text_lines import LONGEST_LINE, InputError, Placed

UNPACKED, UNPACKED_TIMES = 64 * 2**20, 100
"""The bytes that a row group of any file may unpack to; above that, their ratio to its size."""
NESTED, NESTED_TIMES = 2**23, 64
"""The values in lists of a row group of any file; above that, their ratio to its size."""
WHOLE, WHOLE_TIMES = 128 * 2**20, 1000
"""The bytes of rows that any file may hold; above that, their ratio to the file's size."""
WIDEST = 4096
"""The bytes of a value of fixed width."""
BATCH = 1024
"""The rows that are read at once."""
VALUE, CONTAINER = 8, 64
"""The size that a value, and a list or an object, adds to its texts."""


class UnboundedError(ValueError):
    """A file that would take more memory than it should; the message has the reason."""


def table_rows(path: Path, *, arrow: bool) -> Iterator[Placed]:
    """Yield the rows of a Parquet file, or of an Arrow one.

    Raises:
        InputError: for a file or row that cannot be read, or that unpacks to far more than it
            takes.
    """
    number = 0
    try:
        batches = _arrow_batches(path) if arrow else _parquet_batches(path)
        for rows in _bound_rows(batches, path.stat().st_size):
            for row in rows.to_pylist():
                number += 1
                yield f"row {number}", as_row(row)
    except UnboundedError as error:
        raise InputError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a text in it is not UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        message = str(error).partition("\n")[0]
        kind = "Arrow" if arrow else "Parquet"
        raise InputError(f"{path}: not a readable {kind} file: {message}") from error


def decompressed_by_arrow(file: IO[bytes], form: str) -> BufferedReader:
    """Return the decompressed contents of a file; `form` is zstd or lz4."""
    return BufferedReader(pa.CompressedInputStream(file, form))


def _require_distinct(path: Path, fields: Iterable[Any], where: str = "the table") -> None:
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
        while _is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            inner = [kind.field(n) for n in range(kind.num_fields)]
            _require_distinct(path, inner, f"the objects in {field.name!r}")


def _arrow_batches(path: Path) -> Iterator[pa.StructArray]:
    """Yield the rows of a stream of batches: its buffers are mapped, not unpacked."""
    with pa.memory_map(str(path)) as stream, pa.ipc.open_stream(stream) as batches:
        _require_distinct(path, batches.schema)
        for batch in batches:
            batch.validate(full=True)
            for start in range(0, len(batch), BATCH):
                yield batch.slice(start, BATCH).to_struct_array()


def _parquet_batches(path: Path) -> Iterator[pa.StructArray]:
    with pq.ParquetFile(path) as file:
        _require_distinct(path, file.schema_arrow)
        columns = [file.schema.column(n) for n in range(len(file.schema))]
        _require_bounded(columns, file.metadata)
    texts = [
        column.path
        for column in columns
        if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL"
    ]
    with pq.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
        for batch in file.iter_batches(batch_size=BATCH):
            yield batch.to_struct_array()


def _require_bounded(columns: list[Any], footer: Any) -> None:
    """Refuse a file whose row groups, by its footer, unpack to far more than they take."""
    for column in columns:
        if column.length > WIDEST:
            raise UnboundedError(f"the column {column.path!r} has values of {column.length} bytes")
    for number in range(footer.num_row_groups):
        chunks = [footer.row_group(number).column(place) for place in range(len(columns))]
        packed = sum(chunk.total_compressed_size for chunk in chunks)
        unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
        both = list(zip(columns, chunks, strict=True))
        nested = sum(chunk.num_values for c, chunk in both if c.max_repetition_level)
        if unpacked > max(UNPACKED, UNPACKED_TIMES * packed):
            raise UnboundedError(f"{packed} bytes of it unpack to {unpacked}")
        if nested > max(NESTED, NESTED_TIMES * packed):
            raise UnboundedError(f"{packed} bytes of it unpack to lists of {nested} values")
        for column, chunk in both:
            if "DELTA_BYTE_ARRAY" in chunk.encodings:
                raise UnboundedError(
                    f"the column {column.path!r} is encoded as DELTA_BYTE_ARRAY, whose size "
                    "lpfloop cannot compute; write the file again without that encoding"
                )


def _bound_rows(batches: Iterable[pa.StructArray], file_size: int) -> Iterator[pa.StructArray]:
    """Yield a file's rows, few at a time, once it is known that their texts fit into memory.

    Raises:
        UnboundedError: for a row of more than `LONGEST_LINE` bytes, or if all are far larger than
            the file.
    """
    held = number = 0
    for rows in batches:
        size = _size(rows)
        held += size
        if held > max(WHOLE, WHOLE_TIMES * file_size):
            raise UnboundedError(
                f"its first {number + len(rows)} rows take {held} bytes and the file only "
                f"{file_size}; if that is intended, write one JSON object a line"
            )
        if size <= LONGEST_LINE:
            number += len(rows)
            yield rows
            continue
        for place in range(len(rows)):
            number += 1
            row = rows.slice(place, 1)
            if (size := _size(row)) > LONGEST_LINE:
                raise UnboundedError(f"row {number} takes {size} bytes, over {LONGEST_LINE}")
            yield row


def _size(array: Any) -> int:
    """Return about the bytes that an array's values take as text."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.call_function("binary_length", [array.dictionary]).cast(pa.int64())
        return _sum(lengths.take(array.indices)) + VALUE * len(array)
    if pa.types.is_struct(kind):
        return CONTAINER * len(array) + sum(map(_size, array.flatten()))
    if _is_list(kind):
        return CONTAINER * len(array) + _size(array.flatten())
    text = any(is_one(kind) for is_one in TEXT_TYPES)
    lengths = _sum(pc.call_function("binary_length", [array])) if text else 0
    return lengths + VALUE * len(array)


def _sum(lengths: Any) -> int:
    return pc.call_function("sum", [lengths]).as_py() or 0


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
