# pyright: basic
"""The rows of a user's file, each with its place: JSON Lines, one JSON list, or Parquet.

Files are read strictly and row by row; errors name the file and the place.
"""

import codecs
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

LONGEST_LINE = 10 * 2**20
LARGEST_LIST = 2**30
PARQUET = b"PAR1"
LIST = re.compile(rb"\s*\[\s*\{")

Row = dict[str, object]
Placed = tuple[str, Row]
"""Where a row stands (`line 3`, `row 3`), and the row."""


class RowError(ValueError):
    """What is wrong with one row; the reader adds file and place."""


class InputError(ValueError):
    """A file that cannot be used; the message names the file, the place and the remedy."""


def placed_rows(path: Path) -> Iterator[Placed]:
    """Yield the rows of a file with their places; the first bytes decide the format.

    Raises:
        InputError: for a file or row that cannot be read.
    """
    head = _head(path) if path.is_file() else b""
    if head.startswith(PARQUET):
        return _parquet_rows(path)
    if LIST.match(head.removeprefix(codecs.BOM_UTF8)):
        return _list_rows(path)
    return _line_rows(path)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(64)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be read: {error.strerror or error}")


def _line_rows(path: Path) -> Iterator[Placed]:
    for number, text in _lines(path):
        place = f"line {number}"
        try:
            row = parse_row(text)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        yield place, row


def _list_rows(path: Path) -> Iterator[Placed]:
    """Yield the rows of one JSON list, as AlpacaEval and AlpacaFarm publish theirs."""
    if path.stat().st_size > LARGEST_LIST:
        raise InputError(
            f"{path}: a JSON list of over {LARGEST_LIST} bytes; write one JSON object a line"
        )
    try:
        values = _parsed(_decoded(path, 1, path.read_bytes()))
        for number, value in enumerate(cast("list[object]", values), start=1):
            yield f"row {number}", _object(value, f"entry {number} of the list is none")
    except RowError as error:
        raise InputError(f"{path}: {error}") from error


def _parquet_rows(path: Path) -> Iterator[Placed]:
    import pyarrow as pa

    from .parquet_pages import UnboundedError
    from .parquet_rows import parquet_rows

    try:
        for number, row in enumerate(parquet_rows(path, LONGEST_LINE), start=1):
            yield f"row {number}", row
    except UnboundedError as error:
        raise InputError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a text in it is not UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"{path}: not a readable Parquet file: {said}") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(data) > LONGEST_LINE:
                    raise InputError(f"{path}, line {number}: longer than {LONGEST_LINE} bytes")
                text = _decoded(path, number, data)
                if text.strip():
                    yield number, text
    except OSError as error:
        raise _unreadable(path, error) from error


def _decoded(path: Path, number: int, data: bytes) -> str:
    if number == 1:
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}, line {number}: not UTF-8 at byte {error.start + 1} of the line; "
            "save the file as UTF-8"
        ) from error


def parse_row(line: str) -> Row:
    """Return the JSON object of a line.

    Raises:
        RowError: if it does not hold one.
    """
    return _object(_parsed(line), "JSON Lines has one object a line")


def _object(value: object, remedy: str) -> Row:
    if not isinstance(value, dict):
        raise RowError(f"expected a JSON object; {remedy}")
    return cast("Row", value)


def _parsed(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RowError:
        raise
    except json.JSONDecodeError as error:
        raise RowError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise RowError(f"not readable as JSON: {error}") from error


def _unique(pairs: list[tuple[str, object]]) -> Row:
    """Build an object; a repeated field would be lost silently, so it is refused."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowError(f"the field {twice!r} appears twice")
    return row
