"""The lines of a user's file, and what is said of a file or row that cannot be used."""

import codecs
import hashlib
from collections.abc import Iterator
from pathlib import Path

from .file_row import Row

LONGEST_LINE = 10 * 2**20

Placed = tuple[str, Row]
"""Where a row stands (`line 3`, `row 3`), and the row."""


class RowError(ValueError):
    """What is wrong with one row; the reader adds file and place."""


class InputError(ValueError):
    """A file that cannot be used; the message names the file, the place and the remedy."""


def raw_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every line, its ending included, with its number.

    Raises:
        InputError: for a file that cannot be read, or a line that is too long or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(data) > LONGEST_LINE:
                    raise InputError(f"{path}, line {number}: longer than {LONGEST_LINE} bytes")
                yield number, decoded(path, number, data)
    except OSError as error:
        raise unreadable(path, error) from error


def decoded(path: Path, number: int, data: bytes) -> str:
    """Return a line's text.

    Raises:
        InputError: if it is not UTF-8.
    """
    if number == 1:
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}, line {number}: not UTF-8 at byte {error.start + 1} of the line; "
            "save the file as UTF-8"
        ) from error


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> InputError:
    """Return what to raise for a file that the system does not let us read."""
    return InputError(f"{path}: cannot be read: {error.strerror or error}")
