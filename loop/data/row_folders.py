"""Folders of rows: saved by `datasets`, or shards as data sets are published.

A folder means its data files, all of them or one split's, written as `FOLDER/train`. Only data
files are read; a data set's loading script never runs.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from errno import ENOENT
from pathlib import Path

from .packed_files import bare_name
from .text_lines import InputError, digest_of_file, unreadable

ENDINGS = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
NO_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json"})
"""The files that `datasets` writes about a data set."""
HIDDEN = (".", "cache-")
"""How the names of files begin that are no data; `datasets` names its caches so."""
SHARD = re.compile(r"(?P<name>.+?)-(?P<number>\d{5})-of-(?P<of>\d{5})(-[0-9a-f]+)?")
"""The stem of one of several files, as data sets are published: train-00000-of-00002."""
SPLIT_NAMES = frozenset({"train", "test", "validation", "valid", "val", "dev", "eval"})


def data_files(place: Path) -> list[Path]:
    """Return the data files of a folder, or of one of its splits, in order.

    Raises:
        InputError: if data files are missing, or are of several splits.
    """
    try:
        return _data_files(place)
    except OSError as error:
        raise unreadable(place, error) from error


def _data_files(place: Path) -> list[Path]:
    if place.is_dir():
        return _of_folder(place)
    parts = _parts(place.parent) if place.parent.is_dir() else {}
    if parts.get(place.name):
        return _whole(parts[place.name])
    if any(parts):
        raise InputError(f"{place}: no such file or folder{_list_splits(place.parent, parts)}")
    raise FileNotFoundError(ENOENT, os.strerror(ENOENT))


def digest_of_files(files: Sequence[Path]) -> str:
    """Return a hash of the names and bytes of files.

    Raises:
        InputError: if they cannot be read.
    """
    digests = [[path.name, digest_of_file(path)] for path in files]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def _of_folder(folder: Path) -> list[Path]:
    parts = _parts(folder)
    if len(parts) == 1:
        return _whole(next(iter(parts.values())))
    if parts:
        raise InputError(f"{folder}: holds several parts{_list_splits(folder, parts)}")
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


def _list_splits(folder: Path, groups: Mapping[str, object]) -> str:
    """Return the half sentence that lists the splits to choose from."""
    names = " or ".join(str(folder / name) for name in sorted(groups)[:8] if name)
    return f"; name {names}" if names else ""


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
