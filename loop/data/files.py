"""The rows of a user's file or folder, each with its place.

A file is JSON Lines, one JSON list, Parquet, CSV or TSV, or Arrow as `datasets` saves it, and may
be compressed. A folder, saved by `datasets` or of shards as data sets are published, means its data
files, all of them or one split's, written as `FOLDER/train`; a loading script never runs.
`hf:OWNER/NAME` is a data set in the hub's cache. They are read strictly and row by row; errors name
the file and the place.
"""

import codecs
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...stores.hub_cache import dataset_name, not_cached, snapshot
from .file_row import Row, RowError
from .text_lines import (
    BadRow,
    InputError,
    Placed,
    bare_name,
    digest_of_file,
    open_unpacked,
    refuse,
    require_plain,
    unreadable,
)
from .text_rows import SEPARATORS, csv_rows, line_rows, list_rows, unpack_cells

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
ENDINGS = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
NO_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json"})
"""The files that `datasets` writes about a data set."""
HIDDEN = (".", "cache-")
"""How the names of files begin that are no data; `datasets` names its caches so."""
SHARD = re.compile(r"(?P<name>.+?)-(?P<number>\d{5})-of-(?P<of>\d{5})(-[0-9a-f]+)?")
"""The stem of one of several files, as data sets are published: train-00000-of-00002."""
SPLIT_NAMES = frozenset({"train", "test", "validation", "valid", "val", "dev", "eval"})


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
    if not _is_folder(place):
        return digest_of_file(place)
    digests = [[file.name, digest_of_file(file)] for file in _files(path, place)]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def _is_folder(place: Path) -> bool:
    """Whether a place is a folder, or the split of one."""
    return place.is_dir() or not place.exists()


def _files(path: Path, place: Path) -> list[Path]:
    """Return the data files of a folder, whose messages call it as the user does."""
    name = dataset_name(str(path))
    try:
        return _data_files(place)
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
    head = b""
    if path.is_file():
        with open_unpacked(path) as file:
            head = file.read(64)
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


def _data_files(place: Path) -> list[Path]:
    """Return the data files of a folder, or of one of its splits, in order.

    Raises:
        InputError: if data files are missing, or are of several splits.
    """
    folder, split = (place, None) if place.is_dir() else (place.parent, place.name)
    try:
        parts = _parts(folder)
    except OSError as error:
        raise unreadable(place, error) from error
    names = " or ".join(str(folder / name) for name in sorted(parts)[:8] if name)
    hint = f"; name {names}" if names else ""
    if split is not None:
        if parts.get(split):
            return _whole(parts[split])
        raise InputError(f"{place}: no such file or folder{hint}")
    if len(parts) == 1:
        return _whole(next(iter(parts.values())))
    if parts:
        raise InputError(f"{folder}: holds several parts{hint}")
    raise InputError(
        f"{folder}: holds no data files ({', '.join(ENDINGS)}); a loading script is never run"
    )


def _parts(folder: Path) -> dict[str, list[Path]]:
    """Return a folder's data files by split; without any, the only data subfolder's."""
    groups = _groups(folder)
    if groups:
        return groups
    below = sorted(sub for sub in folder.iterdir() if sub.is_dir() and _groups(sub))
    return _groups(below[0]) if len(below) == 1 else {sub.name: [] for sub in below}


def _groups(folder: Path) -> dict[str, list[Path]]:
    """Return a folder's own data files by split; shards of no split are under an empty name."""
    groups = dict[str, list[Path]]()
    for path in sorted(folder.iterdir()):
        if _is_data(path) and path.is_file():
            groups.setdefault(_split(path), []).append(path)
    return groups


def _is_data(path: Path) -> bool:
    known = bare_name(path).suffix.lower() in ENDINGS and bare_name(path).name not in NO_DATA
    return known and not path.name.startswith(HIDDEN)


def _split(path: Path) -> str:
    stem = bare_name(path).stem
    shard = SHARD.fullmatch(stem)
    if shard is not None:
        return shard["name"]
    return stem if stem in SPLIT_NAMES else ""


def _whole(files: Sequence[Path]) -> list[Path]:
    """Return the files, if none of the shards that their names count is missing."""
    stems = [bare_name(path).stem for path in files]
    numbered = [shard for stem in stems if (shard := SHARD.fullmatch(stem))]
    there = {int(shard["number"]) for shard in numbered}
    for shard in numbered:
        missing = sorted(set(range(int(shard["of"]))) - there)
        if missing:
            raise InputError(
                f"{files[0].parent}: incomplete: file {missing[0]:05} of {shard['of']} of "
                f"{shard['name']!r} is missing; download it again"
            )
    return list(files)
