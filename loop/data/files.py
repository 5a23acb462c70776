"""The rows of a user's file or folder, each with its place.

A file is JSON Lines, one JSON list, Parquet, CSV or TSV, or Arrow as `datasets` saves it, and may
be compressed (`packed_files`). A folder means its data files (`row_folders`), and `hf:OWNER/NAME` a
data set in the hub's cache. They are read strictly and row by row; errors name the file and the
place.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...stores.hub_cache import dataset_name, not_cached, snapshot
from .csv_rows import SEPARATORS, csv_rows
from .file_row import Row
from .json_rows import line_rows, list_rows, unpack_cells
from .packed_files import bare_name, open_unpacked, require_plain
from .row_folders import data_files, digest_of_files
from .text_lines import (
    BadRow,
    InputError,
    Placed,
    RowError,
    digest_of_file,
    refuse,
)

__all__ = [
    "InputError",
    "Placed",
    "Row",
    "RowError",
    "file_digest",
    "placed_rows",
]

LIST = re.compile(rb"\s*\[\s*\{")
PARQUET = b"PAR1"
ARROW = ".arrow"


def placed_rows(path: Path, bad: BadRow = refuse) -> Iterator[Placed]:
    """Yield the rows of a file or folder with their places; unreadable rows are passed to `bad`.

    CSV and TSV are recognised by the name's ending, other formats by the first bytes.

    Raises:
        InputError: for a file that cannot be read, or not from some row on.
    """
    place = _local(path)
    return _rows_of(_files(path, place), bad) if _is_folder(place) else _file_rows(place, bad)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes; of a folder, of its data files' names and hashes.

    Raises:
        InputError: if it cannot be read.
    """
    place = _local(path)
    return digest_of_files(_files(path, place)) if _is_folder(place) else digest_of_file(place)


def _is_folder(place: Path) -> bool:
    """Whether a place is a folder, or the split of one."""
    return place.is_dir() or not place.exists()


def _files(path: Path, place: Path) -> list[Path]:
    """Return the data files of a folder, whose messages call it as the user does."""
    name = dataset_name(str(path))
    try:
        return data_files(place)
    except InputError as error:
        root = snapshot(name) if name is not None else None
        if name is None or root is None:
            raise
        repository = replace(name, inside="").written
        raise InputError(str(error).replace(str(root), repository)) from error


def name_of_source(path: Path) -> str:
    """Return the name of a file, folder or hub data set, for rows that name no source."""
    name = dataset_name(str(path))
    return path.name if name is None else name.repo


def _local(path: Path) -> Path:
    """Return the local path of the rows; a data set of the hub is in its cache.

    Raises:
        InputError: if the data set is not cached.
    """
    name = dataset_name(str(path))
    if name is None:
        return path
    folder = snapshot(name)
    if folder is None:
        raise InputError(not_cached(name))
    return folder / name.inside


def _file_rows(path: Path, bad: BadRow) -> Iterator[Placed]:
    for place, row in _written_rows(path, bad):
        try:
            yield place, unpack_cells(row)
        except RowError as error:
            bad(path, place, error)


def _written_rows(path: Path, bad: BadRow) -> Iterator[Placed]:
    """Yield the rows of a file as they are written there."""
    ending = bare_name(path).suffix.lower()
    if ending in SEPARATORS:
        return csv_rows(path, bad)
    head = _head(path) if path.is_file() else b""
    if ending == ARROW or head.startswith(PARQUET):
        from .table_files import table_rows

        require_plain(path, "Parquet or Arrow")
        return table_rows(path, arrow=ending == ARROW)
    if LIST.match(head.removeprefix(codecs.BOM_UTF8)):
        return list_rows(path, bad)
    return line_rows(path, bad)


def _rows_of(files: Sequence[Path], bad: BadRow) -> Iterator[Placed]:
    for file in files:
        for place, row in _file_rows(file, bad):
            yield f"{file.name}, {place}", row


def _head(path: Path) -> bytes:
    with open_unpacked(path) as file:
        return file.read(64)
