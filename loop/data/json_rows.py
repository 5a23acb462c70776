"""The rows of JSON Lines, or of one JSON list."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from .file_row import Row
from .packed_files import byte_lines, unpacked
from .text_lines import BadRow, InputError, Placed, RowError, decoded, utf8_text

LARGEST_LIST = 2**30


def line_rows(path: Path, bad: BadRow) -> Iterator[Placed]:
    """Yield the rows of JSON Lines, skipping blank lines; bad rows are passed to `bad`.

    Raises:
        InputError: for a file that cannot be read.
    """
    for number, data in byte_lines(path):
        place = f"line {number}"
        try:
            text = decoded(number, data)
            row = parse_row(text) if text.strip() else None
        except RowError as error:
            bad(path, place, error)
            continue
        if row is not None:
            yield place, row


def list_rows(path: Path, bad: BadRow) -> Iterator[Placed]:
    """Yield the rows of one JSON list, as AlpacaEval and AlpacaFarm publish theirs.

    Entries that are not objects are passed to `bad`.

    Raises:
        InputError: for a file that cannot be read.
    """
    with unpacked(path) as file:
        data = file.read(LARGEST_LIST + 1)
    if len(data) > LARGEST_LIST:
        raise InputError(
            f"{path}: a JSON list of over {LARGEST_LIST} bytes; write one JSON object a line"
        )
    try:
        values = parsed(utf8_text(1, data))
    except RowError as error:
        raise InputError(f"{path}: {error}") from error
    for number, value in enumerate(cast("list[object]", values), start=1):
        place = f"row {number}"
        try:
            row = _object(value, f"entry {number} of the list is none")
        except RowError as error:
            bad(path, place, error)
            continue
        yield place, row


def parse_row(line: str) -> Row:
    """Return the JSON object of a line.

    Raises:
        RowError: if it does not hold one.
    """
    return _object(parsed(line), "JSON Lines has one object a line")


def _object(value: object, remedy: str) -> Row:
    if not isinstance(value, Row):
        raise RowError(f"expected a JSON object; {remedy}")
    return value


def parsed(text: str) -> object:
    """Return the value of a JSON text, whose objects are rows.

    Raises:
        RowError: if it is not JSON, or an object has a field twice.
    """
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
    row = Row(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowError(f"the field {twice!r} appears twice")
    return row
