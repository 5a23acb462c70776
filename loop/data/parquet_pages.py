# pyright: basic
"""An estimate of the memory that an untrusted Parquet file needs, by the headers of its pages.

A few hundred bytes can unpack to gigabytes, and the footer's sizes need not be true. A reader
allocates the size in each page's header, so these are read before any page is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

UNPACKED = 64 * 2**20
"""The bytes that a row group of any file may unpack to, and its repeated texts, written out."""
UNPACKED_TIMES = 100
"""Above that, the maximum ratio of a row group's unpacked size to its size in the file."""
NESTED = 2**23
"""The values in lists that a row group of any file may have."""
NESTED_TIMES = 64
"""Above that, the maximum number of such values for each byte of the file."""
BATCH = 1024
"""The rows that are read at once."""
WIDEST = 4096
"""The bytes of a value of fixed width."""
DELTA_BYTE_ARRAY = 7
BY_DICTIONARY = (2, 8)
TEXT = "BYTE_ARRAY"
CODECS = {"LZ4": "lz4_raw", "LZ4_RAW": "lz4_raw"}
HEADER, LARGEST_HEADER = 2**12, 2**20
DATA, DICTIONARY, DATA_V2 = 5, 7, 8
"""The fields of a page's header for each kind of page."""
UNREADABLE = "the header of one of its pages cannot be read"


class UnboundedError(ValueError):
    """A file that would take more memory than it should; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnPage:
    """The contents of a page's header, and the start of the page's content."""

    start: int
    unpacked: int
    packed: int
    values: int
    encoding: int
    is_dictionary: bool


def repeating_columns(file: Any, stream: BinaryIO) -> list[str]:
    """Return the columns of a `pyarrow.parquet.ParquetFile` whose texts repeat into very much.

    `stream` are the file's bytes.

    Raises:
        UnboundedError: if reading the others could take far more memory than the file's size.
    """
    columns = list(map(file.schema.column, range(len(file.schema))))
    for column in columns:
        if column.length > WIDEST:
            raise UnboundedError(f"the column {column.path!r} has values of {column.length} bytes")
    groups = range(file.metadata.num_row_groups)
    found = [_repeating(columns, file.metadata.row_group(number), stream) for number in groups]
    return sorted({path for paths in found for path in paths})


def _repeating(columns: list[Any], group: Any, stream: BinaryIO) -> list[str]:
    unpacked = nested = packed = 0
    found: list[str] = []
    for place, column in enumerate(columns):
        chunk = group.column(place)
        pages = list(_pages(chunk, stream))
        if any(page.encoding == DELTA_BYTE_ARRAY for page in pages):
            raise UnboundedError(
                f"the column {column.path!r} is encoded as DELTA_BYTE_ARRAY, whose size lpfloop "
                "cannot compute; write the file again without that encoding"
            )
        unpacked += sum(page.unpacked for page in pages)
        packed += sum(page.packed for page in pages)
        nested += sum(p.values for p in pages) if column.max_repetition_level else 0
        if column.physical_type == TEXT and _written_out(column, chunk, pages, stream) > UNPACKED:
            found.append(column.path)
    if unpacked > max(UNPACKED, UNPACKED_TIMES * packed):
        raise UnboundedError(f"{packed} bytes of it unpack to {unpacked}")
    if nested > max(NESTED, NESTED_TIMES * packed):
        raise UnboundedError(f"{packed} bytes of it unpack to lists of {nested} values")
    return found


def _written_out(column: Any, chunk: Any, pages: list[_ColumnPage], stream: BinaryIO) -> int:
    """Return the most bytes that the texts of a dictionary become in one batch."""
    values = sum(page.values for page in pages if page.encoding in BY_DICTIONARY)
    if not column.max_repetition_level:
        values = min(values, BATCH)
    dictionary = next((page for page in pages if page.is_dictionary), None)
    if dictionary is None or values * dictionary.unpacked <= UNPACKED:
        return 0
    return values * _longest(dictionary, chunk.compression, stream)


def _longest(page: _ColumnPage, codec: str, stream: BinaryIO) -> int:
    """Return the length of the longest text of a dictionary."""
    if page.unpacked > max(UNPACKED, UNPACKED_TIMES * page.packed):
        raise UnboundedError(f"{page.packed} bytes of it unpack to {page.unpacked}")
    stream.seek(page.start)
    data = stream.read(page.packed)
    if codec != "UNCOMPRESSED":
        data = pa.Codec(CODECS.get(codec, codec.lower())).decompress(
            data, decompressed_size=page.unpacked, asbytes=True
        )
    at = longest = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return longest


def _pages(chunk: Any, stream: BinaryIO) -> Iterator[_ColumnPage]:
    """Yield the pages of a column of a row group."""
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    at = min((start for start in starts if start), default=0)
    end = at + chunk.total_compressed_size
    while 0 <= at < end:
        fields, length = _header(stream, at)
        kind = next((k for k in (DATA, DATA_V2, DICTIONARY) if k in fields), None)
        told = {} if kind is None else _struct(fields[kind])
        page = _ColumnPage(
            start=at + length,
            unpacked=_size(fields, 2),
            packed=_size(fields, 3),
            values=_size(told, 1) if told else 0,
            encoding=_size(told, 4 if kind == DATA_V2 else 2) if told else 0,
            is_dictionary=kind == DICTIONARY,
        )
        yield page
        at = page.start + page.packed


def _header(stream: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the page header at a place, and its length."""
    for size in (HEADER, LARGEST_HEADER):
        stream.seek(at)
        compact = _Compact(stream.read(size))
        try:
            return compact.fields(), compact.at
        except IndexError:
            continue
    raise UnboundedError(UNREADABLE)


def _struct(value: Any) -> dict[int, Any]:
    if not isinstance(value, dict):
        raise UnboundedError(UNREADABLE)
    return value


def _size(fields: dict[int, Any], number: int) -> int:
    """Return a field of a header that must be a number of at least 0."""
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise UnboundedError(UNREADABLE)
    return value


class _Compact:
    """Thrift's compact protocol, in which the headers of pages are written."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct by their numbers."""
        if depth > 8:  # noqa: PLR2004 -- a page's header has three levels
            raise UnboundedError(UNREADABLE)
        found: dict[int, Any] = {}
        number = 0
        while lead := self._byte():
            number = number + (lead >> 4) if lead >> 4 else self._integer()
            found[number] = self._value(lead & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:  # noqa: PLR2004 -- the protocol's own numbers
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 8:  # noqa: PLR2004
            length = self._varint()
            self.at += length
            return None
        if kind == 12:  # noqa: PLR2004
            return self.fields(depth + 1)
        # Doubles, lists and maps do not occur in a page's header.
        raise UnboundedError(UNREADABLE)

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004
                return value
            shift += 7

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
