"""The lines of a user's file, and the errors of files or rows that cannot be used.

A compressed file (gzip, bzip2, xz, zstd, lz4) is read as the file inside. The first bytes decide
whether a file is compressed, so a wrong file name does no harm.
"""

import bz2
import codecs
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from .file_row import Row, RowError

LONGEST_LINE = 10 * 2**20
PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
"""The endings of compressed files' names."""
MAGIC: Mapping[bytes, str] = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
ARCHIVES = (b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c", b"Rar!")
TAR, TAR_PLACE = b"ustar", 257

Placed = tuple[str, Row]
"""The place of a row (`line 3`, `row 3`), and the row."""


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


def bare_name(path: Path) -> Path:
    """Return a file's name without the ending of its compression: `a.csv` for `a.csv.gz`."""
    return Path(path.stem if path.suffix.lower() in PACKED else path.name)


@contextmanager
def open_unpacked(path: Path) -> Generator[IO[bytes]]:
    """Open a file; if it is compressed, the file inside.

    Raises:
        InputError: if it cannot be read, or is an archive of several files.
    """
    try:
        with path.open("rb") as file:
            start = file.peek(TAR_PLACE + len(TAR))
            _refuse_archive(path, start)
            form = _compression(start)
            if form is None:
                yield file
                return
            with _decompress(file, form) as inside:
                _refuse_archive(path, inside.peek(TAR_PLACE + len(TAR)))
                yield cast("IO[bytes]", inside)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the compressed file is damaged or cut off: {error}") from error
    except OSError as error:
        raise unreadable(path, error) from error


def byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield every line, its ending included, with its number; one that is too long is cut.

    Raises:
        InputError: for a file that cannot be read.
    """
    with open_unpacked(path) as file:
        number = 0
        while data := file.readline(LONGEST_LINE + 1):
            number += 1
            yield number, data
            while len(data) > LONGEST_LINE and not data.endswith(b"\n"):
                data = file.readline(LONGEST_LINE + 1)


def require_plain(path: Path, kind: str) -> None:
    """Refuse a compressed file of a kind that is read from several places.

    Raises:
        InputError: naming the kind and the remedy.
    """
    with path.open("rb") as file:
        form = _compression(file.peek())
    if form is not None:
        raise InputError(f"{path}: a {kind} file compressed with {form}; unpack it first")


def _compression(start: bytes) -> str | None:
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)


def _decompress(file: IO[bytes], form: str) -> BufferedReader:
    match form:
        case "gzip":
            return BufferedReader(gzip.GzipFile(fileobj=file))
        case "bz2":
            return BufferedReader(bz2.BZ2File(file))
        case "xz":
            return BufferedReader(lzma.LZMAFile(file))
        case _:
            # Imported here: few files need it, and Arrow takes long to load.
            from .table_files import decompressed_by_arrow

            return decompressed_by_arrow(file, form)


def _refuse_archive(path: Path, start: bytes) -> None:
    if start.startswith(ARCHIVES) or start[TAR_PLACE:].startswith(TAR):
        raise InputError(
            f"{path}: an archive (zip, tar or a spreadsheet) and no file of rows; unpack it, or "
            "save the table as CSV, and name the files inside"
        )
