"""The lines of a user's file, and the errors of files or rows that cannot be used."""

import codecs
import hashlib
from collections.abc import Callable
from pathlib import Path

from .file_row import Row

LONGEST_LINE = 10 * 2**20

Placed = tuple[str, Row]
"""The place of a row (`line 3`, `row 3`), and the row."""


class RowError(ValueError):
    """The fault of one row; the reader adds file and place."""


class InputError(ValueError):
    """A file that cannot be used; the message names the file, the place and the remedy."""

    code = "LPF-102"


BadRow = Callable[[Path, str, RowError], None]
"""Handles a row that cannot be read: its file, its place and the error."""


def refuse(path: Path, place: str, error: RowError) -> None:
    """Refuse a file for one row.

    Raises:
        InputError: always.
    """
    raise InputError(f"{path}, {place}: {error}") from error


def decode_line(number: int, data: bytes) -> str:
    """Return a line's text.

    Raises:
        RowError: if it is too long, or not UTF-8.
    """
    if len(data) > LONGEST_LINE:
        raise RowError(f"longer than {LONGEST_LINE} bytes")
    return utf8_text(number, data)


def utf8_text(number: int, data: bytes) -> str:
    """Return the text that begins on a line.

    Raises:
        RowError: if it is not UTF-8.
    """
    if number == 1:
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RowError(
            f"not UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8"
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
    """Return the error to raise for a file that the system does not allow reading."""
    return InputError(f"{path}: cannot be read: {error.strerror or error}")
