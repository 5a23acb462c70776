"""The rows of JSON Lines, and those of one JSON list."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from .file_row import Row
from .text_lines import InputError, Placed, RowError, decoded, raw_lines

LARGEST_LIST = 2**30


def line_rows(path: Path) -> Iterator[Placed]:
    """Yield the rows of JSON Lines; blank lines are none.

    Raises:
        InputError: for a file or line that cannot be read.
    """
    for number, text in raw_lines(path):
        if not text.strip():
            continue
        place = f"line {number}"
        try:
            row = parse_row(text)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        yield place, row


def list_rows(path: Path) -> Iterator[Placed]:
    """Yield the rows of one JSON list, as AlpacaEval and AlpacaFarm publish theirs.

    Raises:
        InputError: for a file or entry that cannot be read.
    """
    if path.stat().st_size > LARGEST_LIST:
        raise InputError(
            f"{path}: a JSON list of over {LARGEST_LIST} bytes; write one JSON object a line"
        )
    try:
        values = _parsed(decoded(path, 1, path.read_bytes()))
        for number, value in enumerate(cast("list[object]", values), start=1):
            yield f"row {number}", _object(value, f"entry {number} of the list is none")
    except RowError as error:
        raise InputError(f"{path}: {error}") from error


def parse_row(line: str) -> Row:
    """Return the JSON object of a line.

    Raises:
        RowError: if it does not hold one.
    """
    return _object(_parsed(line), "JSON Lines has one object a line")


def _object(value: object, remedy: str) -> Row:
    if not isinstance(value, Row):
        raise RowError(f"expected a JSON object; {remedy}")
    return value


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
    row = Row(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowError(f"the field {twice!r} appears twice")
    return row
