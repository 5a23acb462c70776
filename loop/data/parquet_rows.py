# pyright: basic
"""The rows of a Parquet file, without taking more memory than they would as lines of JSON.

If a file repeats long texts, they are read as a dictionary: a text that the file contains once is
in memory once, for any number of rows. So a batch can be measured before its rows are made.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .parquet_pages import BATCH, UnboundedError, repeating_columns

WHOLE = 128 * 2**20
"""The bytes of rows that any file may hold."""
TIMES = 1000
"""Above that, the maximum ratio of the rows' size to the file's."""
VALUE, CONTAINER = 8, 64
"""The size that a value, and a list or an object, adds to its texts."""


def parquet_rows(path: Path, longest: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file.

    Raises:
        UnboundedError: for a row of more than `longest` bytes, or a file that unpacks to far more
            than it takes.
    """
    with path.open("rb") as stream, pq.ParquetFile(path) as file:
        repeating = repeating_columns(file, stream)
    with pq.ParquetFile(path, read_dictionary=repeating) as file:
        batches = (b.to_struct_array() for b in file.iter_batches(batch_size=BATCH))
        for rows in bounded(batches, path.stat().st_size, longest):
            yield from _values(rows) if repeating else rows.to_pylist()


def bounded(
    batches: Iterable[pa.StructArray], file_size: int, longest: int
) -> Iterator[pa.StructArray]:
    """Yield a file's batches of rows, after checking that each is of bounded size.

    Raises:
        UnboundedError: for a row of more than `longest` bytes, or if all are far larger than the
            file.
    """
    held = number = 0
    for rows in batches:
        size = _size(rows)
        held += size
        if size > longest:
            _require_short(rows, longest, number)
        number += len(rows)
        if held > max(WHOLE, TIMES * file_size):
            raise UnboundedError(
                f"its first {number} rows take {held} bytes and the file only {file_size}; if that "
                "is intended, write one JSON object a line"
            )
        yield rows


def _require_short(rows: pa.StructArray, longest: int, before: int) -> None:
    for place in range(len(rows)):
        size = _size(rows.slice(place, 1))
        if size > longest:
            raise UnboundedError(f"row {before + place + 1} takes {size} bytes, over {longest}")


def _size(array: Any) -> int:
    """Return about the bytes that an array's values take as text."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = _told("binary_length", array.dictionary).cast(pa.int64())
        told = _told("sum", lengths.take(array.indices)).as_py() or 0
        return told + VALUE * len(array)
    if pa.types.is_struct(kind):
        return CONTAINER * len(array) + sum(map(_size, array.flatten()))
    if _is_list(kind):
        return CONTAINER * len(array) + _size(array.flatten())
    if _is_text(kind):
        return (_told("sum", _told("binary_length", array)).as_py() or 0) + VALUE * len(array)
    return VALUE * len(array)


def _values(array: Any) -> list[Any]:
    """Return an array's values; equal texts of a dictionary are one object."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        places = array.indices.to_pylist()
        texts = {i: array.dictionary[i].as_py() for i in set(places) if i is not None}
        return [None if i is None else texts[i] for i in places]
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        columns = map(_values, array.flatten())
        made = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        found = list(made) if names else [{} for _ in range(len(array))]
        return _with_nulls(array, found)
    if _is_list(kind):
        items, lengths = _values(array.flatten()), _told("list_value_length", array).to_pylist()
        at = 0
        found = []
        for length in lengths:
            found.append(None if length is None else items[at : at + length])
            at += length or 0
        return found
    return array.to_pylist()


def _told(function: str, array: Any) -> Any:
    return pc.call_function(function, [array])


def _with_nulls(array: Any, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    there = array.is_valid().to_pylist()
    return [value if known else None for value, known in zip(values, there, strict=True)]


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_text(kind: Any) -> bool:
    types = pa.types
    return any(
        is_one(kind)
        for is_one in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
        )
    )
