"""Folders of rows: what `datasets` saves, and shards as data sets are published.

A folder stands for its data files, all of them or those of one split, which is named behind it:
`FOLDER/train`. Only data files are read; a data set's loading script never is.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from errno import ENOENT
from pathlib import Path

from .text_lines import InputError, digest_of_file, unreadable

STATE, SPLITS_FILE = "state.json", "dataset_dict.json"
"""What `datasets` writes into the folder of a data set, and into that of several splits."""
ENDINGS = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
NO_DATA = frozenset({"dataset_info.json", "dataset_infos.json", STATE, SPLITS_FILE})
SHARD = re.compile(r"(?P<name>.+?)-(?P<number>\d{5})-of-(?P<of>\d{5})(-[0-9a-f]+)?")
"""The stem of one of several files, as data sets are published: train-00000-of-00002."""
SPLIT_NAMES = frozenset({"train", "test", "validation", "valid", "val", "dev", "eval"})


def data_files(place: Path) -> list[Path]:
    """Return the data files of a folder, or of one of its splits, in order.

    Raises:
        InputError: if there are none, if some are missing, or if they are of several splits.
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
        raise InputError(f"{place}: no such file or folder{_named(place.parent, parts)}")
    raise FileNotFoundError(ENOENT, os.strerror(ENOENT))


def digest_of_files(files: Sequence[Path]) -> str:
    """Return a hash of the names and bytes of files.

    Raises:
        InputError: if they cannot be read.
    """
    told = [[path.name, digest_of_file(path)] for path in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _of_folder(folder: Path) -> list[Path]:
    if (folder / STATE).is_file():
        return _saved(folder)
    parts = _parts(folder)
    if len(parts) == 1:
        return _whole(next(iter(parts.values())))
    if parts:
        raise InputError(f"{folder}: holds several parts{_named(folder, parts)}")
    raise InputError(
        f"{folder}: holds no data files ({', '.join(ENDINGS)}); a loading script is never run"
    )


def _parts(folder: Path) -> dict[str, list[Path]]:
    """Return a folder's data files by split; a folder that only holds others stands for them."""
    groups = _groups(folder)
    if groups:
        return groups
    below = sorted(sub for sub in folder.iterdir() if sub.is_dir() and _holds_data(sub))
    if len(below) != 1:
        return {sub.name: [] for sub in below}
    only = below[0]
    return {"": _saved(only)} if (only / STATE).is_file() else _groups(only)


def _holds_data(folder: Path) -> bool:
    return (folder / STATE).is_file() or bool(_groups(folder))


def _named(folder: Path, groups: Mapping[str, object]) -> str:
    """Return the half sentence that names what could be asked for."""
    names = " or ".join(str(folder / name) for name in sorted(groups)[:8] if name)
    return f"; name {names}" if names else ""


def _groups(folder: Path) -> dict[str, list[Path]]:
    """Return a folder's own data files by split; shards of no split are under an empty name."""
    groups = dict[str, list[Path]]()
    for path in sorted(folder.iterdir()):
        is_data = path.suffix.lower() in ENDINGS and path.name not in NO_DATA
        if is_data and not path.name.startswith(".") and path.is_file():
            groups.setdefault(_split(path), []).append(path)
    return groups


def _split(path: Path) -> str:
    shard = SHARD.fullmatch(path.stem)
    if shard is not None:
        return shard["name"]
    return path.stem if path.stem in SPLIT_NAMES else ""


def _whole(files: Sequence[Path]) -> list[Path]:
    """Return the files, if none is missing of those that their names count."""
    numbered = [shard for path in files if (shard := SHARD.fullmatch(path.stem))]
    there = {int(shard["number"]) for shard in numbered}
    for shard in numbered:
        missing = sorted(set(range(int(shard["of"]))) - there)
        if missing:
            raise InputError(
                f"{files[0].parent}: incomplete: file {missing[0]:05} of {shard['of']} of "
                f"{shard['name']!r} is missing; download it again"
            )
    return list(files)


def _saved(folder: Path) -> list[Path]:
    """Return the files that `datasets` names in the state of a saved data set."""
    path = folder / STATE
    try:
        told = json.loads(path.read_bytes())
        names = [str(entry["filename"]) for entry in told["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the state of a saved data set ({error})") from error
    files = [folder / Path(name).name for name in names]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise InputError(f"{folder}: incomplete: {missing.name} is missing; save it again")
    return files
