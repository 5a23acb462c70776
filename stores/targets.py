"""The rules for outputs: their place, and the targets they may replace, never foreign files.

A folder that an export wrote holds a mark with the names of its files. Only such a folder may be
replaced, and only while it holds nothing else; a lake and the current folder never are.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from .journal_reader import JOURNAL

MARK = ".lpfloop-export"
"""The file with the names of an export's files; hidden, so that loaders of data sets ignore it."""


class TargetError(ValueError):
    """A target that cannot be written to, or that exists already."""

    code = "LPF-103"


def folder_target(target: Path, *, force: bool) -> Path:
    """Return the path of a new folder, with links resolved.

    Raises:
        TargetError: if the target exists, unless it may be replaced and `force` is set.
    """
    place = _outside_lakes(target)
    if not os.path.lexists(place):
        return place
    if not place.is_dir():
        raise TargetError(f"{target} exists and is not a folder: choose another place")
    if Path.cwd().is_relative_to(place):
        raise TargetError(
            f"{target} is the current folder, or holds it, and cannot be replaced: "
            "choose another place"
        )
    if not force:
        raise TargetError(
            f"{target} is there already: choose another place, or add --force if it is an "
            "earlier export"
        )
    require_replaceable(place, target)
    return place


def file_target(target: Path, *, force: bool) -> Path:
    """Return the path of a new file, with links resolved.

    Raises:
        TargetError: if the target exists, unless it is a regular file and `force` is set.
    """
    place = _outside_lakes(target)
    if not os.path.lexists(place):
        return place
    if not place.is_file():
        raise TargetError(f"{target} is not a regular file: choose another name")
    if not force:
        raise TargetError(f"{target} is there already: choose another name, or add --force")
    return place


def mark_of(names: Iterable[str]) -> str:
    """Return the mark of an export that wrote files of these names, paths below its folder."""
    return "".join(f"{name}\n" for name in sorted(names))


def require_replaceable(folder: Path, target: Path) -> None:
    """Refuse a folder that is neither empty nor an export with nothing else in it.

    Raises:
        TargetError: naming it as `target`.
    """
    if folder.is_symlink():
        raise TargetError(f"{target} became a link: choose another place")
    written = _read_mark(folder)
    if written is None:
        if next(folder.iterdir(), None) is None:
            return
        raise TargetError(
            f"{target} was not written by lpfloop and is not replaced: choose another "
            "place, or remove it yourself"
        )
    for path in _below(folder):
        name = path.relative_to(folder).as_posix()
        ours = name in written and path.is_file() and not path.is_symlink()
        if not ours or path.name == JOURNAL:
            raise TargetError(
                f"{target} holds {name}, which its export did not write, and is not replaced: "
                "move that away, or choose another place"
            )


def _outside_lakes(target: Path) -> Path:
    """Resolve links; refuse a lake, and any path inside one."""
    try:
        place = target.resolve()
    except (OSError, RuntimeError) as error:
        raise TargetError(f"{target} cannot be used: {error}") from error
    for folder in (place, *place.parents):
        if _is_lake(folder) or os.path.lexists(folder / JOURNAL):
            raise TargetError(f"{target} is inside a lake, {folder}: choose a place outside of it")
    return place


def _is_lake(folder: Path) -> bool:
    return any((folder / "runs").glob(f"*/{JOURNAL}"))


def _read_mark(folder: Path) -> set[str] | None:
    """Return the names in a folder's mark, including its own; None without a readable mark."""
    try:
        return {MARK, *(folder / MARK).read_text(encoding="utf-8").splitlines()}
    except (OSError, UnicodeDecodeError):
        return None


def _below(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder, at any depth: files, links, and empty folders."""
    for path in folder.iterdir():
        inside = path.is_dir() and not path.is_symlink()
        if inside and next(path.iterdir(), None) is not None:
            yield from _below(path)
        else:
            yield path
