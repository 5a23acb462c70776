# pyright: basic
"""The only way to scan the rows of sealed Parquet files in place.

The bytes of a file are hashed before any row of it is used. A process hashes a file once, as long
as the file looks the same (on disk: inode, size, times) and the same hash is expected;
`forget` makes it hash all files again, before derivations and exports.
"""

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from .piece_hashes import Piece, Pieces, Some, read_pieces, wanted
from .sealed import DamagedError, file_sha256

AT_ONCE = min(8, os.cpu_count() or 1)
"""The number of files to hash concurrently: hashing releases the interpreter's lock."""

ALTERED = "its bytes do not have the hash they had"

_looked: dict[str, tuple[Hashable, str]] = {}
"""Each file's attributes when it was hashed, and its hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """A file or object of rows: its place, and the SHA-256 that it must have.

    `look` returns attributes that reveal a change cheaply; `sha256` hashes it.
    """

    place: str
    expected: str
    look: Callable[[], Hashable]
    sha256: Callable[[], str]


@dataclass(frozen=True, slots=True)
class KnownPieces:
    """A file's attributes, its pieces if it has hashes of them, and the verified pieces."""

    look: Hashable
    pieces: Pieces | None
    proved: set[Piece]


_in_pieces: dict[str, KnownPieces] = {}


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
    return trust([file.place for file in files], **options)


def trust(places: Sequence[str], **options: Any) -> pl.LazyFrame:
    """Return the rows of files that are proved unaltered, or that a store verifies itself."""
    return pl.scan_parquet(list(places), **options)


def verify(files: Iterable[SealedFile], at_once: int = AT_ONCE) -> None:
    """Prove that files are unaltered, by hashing those that are new or look different by now.

    `at_once` files are hashed concurrently.

    Raises:
        DamagedError: naming the first that is missing or altered.
    """
    pending = [file for file in files if _looked.get(file.place) != (file.look(), file.expected)]
    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(_verify, pending):
            pass


def verify_some(paths: Sequence[Path], some: Some) -> None:
    """Prove that the needed pieces of files are unaltered; a file without hashes is hashed whole.

    Raises:
        DamagedError: naming the first that is missing or altered.
    """
    unread = [path for path in paths if _looked.get(str(path)) != (_look(path), path.stem)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        whole = [
            path
            for path, done in zip(unread, pool.map(partial(_some, some), unread), strict=True)
            if not done
        ]
    verify([on_disk(path, path.stem) for path in whole])


def forget() -> None:
    """Make every file be hashed again at its next use."""
    _looked.clear()
    _in_pieces.clear()


def _some(some: Some, path: Path) -> bool:
    """Verify the needed pieces of a file, if it has hashes of its pieces."""
    look = _look(path)
    if look is None:
        return False
    known = _in_pieces.get(str(path))
    if known is None or known.look != look:
        known = _in_pieces[str(path)] = KnownPieces(look, read_pieces(path), set())
    if known.pieces is None:
        return False
    pending = [piece for piece in wanted(known.pieces, some) if piece not in known.proved]
    if pending:
        with path.open("rb", buffering=0) as file:
            altered = not all(piece.agrees(file.fileno()) for piece in pending)
        if altered or _look(path) != look:
            raise DamagedError(f"{path} was altered: {ALTERED}")
        known.proved.update(pending)
    return True


def _verify(file: SealedFile) -> None:
    before = file.look()
    found = file.sha256()
    if found != file.expected or file.look() != before:
        raise DamagedError(f"{file.place} was altered: {ALTERED}")
    _looked[file.place] = (before, found)


def _look(path: Path) -> Hashable:
    try:
        status = path.stat()
    except OSError:
        return None  # Hashing the file gives the error.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
