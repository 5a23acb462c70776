# pyright: basic
"""The one door to the rows of sealed Parquet files that are scanned where they lie.

The bytes of a file are hashed before any row of it is used. A process hashes a file once, as long
as the file looks the same (on disk: inode, size, times) and the same hash is expected;
`forget` makes it hash all again, for what is derived or exported.
"""

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from .sealed import DamagedError, file_sha256

AT_ONCE = min(8, os.cpu_count() or 1)
"""How many files are hashed at a time: hashing holds no lock of the interpreter."""

_looked: dict[str, tuple[Hashable, str]] = {}
"""What each file looked like when it was hashed, and the hash that it was found to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """A file or object of rows: its place, and the SHA-256 that it must have.

    `look` tells, cheaply, whether it may have changed since; `sha256` hashes it.
    """

    place: str
    expected: str
    look: Callable[[], Hashable]
    sha256: Callable[[], str]


def on_disk(path: Path, expected: str) -> SealedFile:
    """Return a file of this machine.

    Raises:
        DamagedError: on use, if it is missing.
    """
    return SealedFile(
        place=str(path),
        expected=expected,
        look=lambda: _look(path),
        sha256=lambda: file_sha256(path),
    )


def scan(files: Sequence[SealedFile], **options: Any) -> pl.LazyFrame:
    """Return the rows of sealed files, one after another; options are `scan_parquet`'s.

    Raises:
        DamagedError: if one is missing or altered.
    """
    verify(files)
    return pl.scan_parquet([file.place for file in files], **options)


def verify(files: Iterable[SealedFile]) -> None:
    """Prove that files are unaltered, by hashing those that are new or look different by now.

    Raises:
        DamagedError: naming the first that is missing or altered.
    """
    owed = [file for file in files if _looked.get(file.place) != (file.look(), file.expected)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(_verify, owed):
            pass


def forget() -> None:
    """Have every file hashed again at its next use."""
    _looked.clear()


def _verify(file: SealedFile) -> None:
    before = file.look()
    found = file.sha256()
    if found != file.expected or file.look() != before:
        raise DamagedError(f"{file.place} was altered: its bytes do not have the hash they had")
    _looked[file.place] = (before, found)


def _look(path: Path) -> Hashable:
    try:
        status = path.stat()
    except OSError:
        return None  # Hashing it tells why.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
