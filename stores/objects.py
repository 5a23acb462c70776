# pyright: basic
"""The storage of a run's sealed files: its folder on disk, or a prefix of a bucket.

`objects_of` chooses. Both take paths below the run's folder, and publish in the same order: a
file is whole under its name before anything refers to it, and a folder counts once its manifest,
which is written last, exists. For a run in a bucket the run's folder holds local files (journals,
locks, work) and verified copies: `bucket_objects`.
"""

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from . import durable, sealed, verified
from .address import BucketError, bucket_of
from .sealed import DamagedError
from .verified import ALL, EncodedRows, Some


class Objects:
    """The sealed files of a run in its folder, each under a path below it.

    `at_once` is the number of files to hash concurrently; `local`: other libraries can open them as
    files of this machine.
    """

    at_once = verified.AT_ONCE
    local = True

    def at(self, path: Path) -> str:
        """Return its place, for messages."""
        return str(path)

    def write_stage_file(self, folder: Path, table: pa.Table) -> EncodedRows:
        """Write a table as `folder/<sha256>.parquet`; it is durable when this returns."""
        rows = verified.encoded_stage(table)
        self._write(folder / f"{rows.sha256}.parquet", rows.data)
        return rows

    def publish(self, path: Path) -> None:
        """Publish a whole and durable file or folder of the run's own folder."""

    def bring(self, paths: Sequence[Path]) -> None:
        """Bring sealed tables to this machine, where they are read."""

    def read_part(self, path: Path) -> pa.Table:
        """Read a sealed table, its bytes verified.

        Raises:
            DamagedError: if the file is missing or altered.
        """
        self.bring([path])
        data = sealed.read_file(path)
        if hashlib.sha256(data).hexdigest() != path.stem:
            raise DamagedError(sealed.altered_message(path))
        return sealed.parse_rows(data)

    def check_part(self, path: Path) -> None:
        """Prove that a sealed table has the hash that is its name.

        Raises:
            DamagedError: if the file is missing or altered.
        """
        if self.sha256(path) != path.stem:
            raise DamagedError(sealed.altered_message(self.at(path)))

    def sha256(self, path: Path) -> str:
        """Hash a published file.

        Raises:
            DamagedError: if it is missing.
        """
        return sealed.file_sha256(path)

    def check_folder(self, path: Path) -> None:
        """Prove that a published folder is whole and unaltered, without copying it.

        Raises:
            DamagedError: naming the missing or altered file.
        """
        sealed.check_folder(path)

    def local_folder(self, path: Path) -> Path:
        """Return a published folder as a local one, every byte verified.

        Raises:
            DamagedError: if it is missing or altered.
        """
        sealed.check_folder(path, sha256=sealed.known_sha256)
        return path

    def local_file(self, path: Path) -> Path:
        """Return a published file as a local one, not verified.

        Raises:
            DamagedError: if it is missing.
        """
        if not path.is_file():
            raise DamagedError(f"{path} is missing, although the journal refers to it")
        return path

    def sizes(self, below: Path) -> dict[Path, int]:
        """Return the size of each file below a folder, or of the one file; {} if none is there."""
        found = [below] if below.is_file() else sorted(below.rglob("*"))
        return {
            path: path.stat().st_size
            for path in found
            if path.is_file() and not _is_temporary(path.relative_to(below))
        }

    def discard(self, paths: Sequence[Path]) -> None:
        """Remove files of one folder, if they are there."""
        for path in paths:
            durable.discard(path)

    def remove(self, path: Path) -> None:
        """Remove a file or folder, if it is there; a partly removed folder never looks whole."""
        if path.exists():
            durable.remove(path)

    def quarantine(self, path: Path, folder: Path) -> None:
        """Put a damaged file or folder, if it is there, into `folder`."""
        if path.exists():
            durable.quarantine(path, folder)

    def verify(self, paths: Sequence[Path], some: Some = ALL) -> None:
        """Prove that sealed tables are unaltered; what this process hashed before is not read.

        No more than `some` must be proved.

        Raises:
            DamagedError: naming the first that is missing or altered.
        """
        self.bring(paths)
        if some == ALL:
            verified.verify((path, path.stem) for path in paths)
        else:
            verified.verify_some(paths, some)

    def scan(self, paths: Sequence[Path], some: Some = ALL, **options: Any) -> pl.LazyFrame:
        """Return the rows of sealed tables, one after another, once they are verified.

        Only the pieces `some` may be read and are verified. Options are `scan_parquet`'s.

        Raises:
            DamagedError: naming the first that is missing or altered.
        """
        self.verify(paths, some)
        return pl.scan_parquet(list(map(str, paths)), **options)

    def _write(self, path: Path, data: bytes) -> None:
        durable.write_file(durable.make_folder(path.parent) / path.name, data, "stage_file")


def require_unused(folder: Path) -> None:
    """Refuse a new run if the bucket holds objects of one whose journal is not here.

    Raises:
        BucketError: if the bucket holds such objects.
    """
    url = bucket_of(folder.parent.parent)
    found = objects_of(folder).sizes(folder) if url else {}
    if url and found:
        raise BucketError(
            f"{url} holds {len(found)} objects of a run {folder.name} whose journal is not at "
            f"{folder}: `lpfloop takeover {shlex.quote(url)} {folder.name}` continues it here; "
            "for a new run choose another name or prefix"
        )


def objects_of(folder: Path) -> Objects:
    """Return the sealed files of the run at `folder`."""
    url = bucket_of(folder.parent.parent)
    if url is None:
        return Objects()
    from .bucket_objects import InBucket  # A lake in a folder needs no client of a bucket.

    return InBucket(url, folder.parent.parent)


def _is_temporary(path: Path) -> bool:
    return any(part.startswith(durable.TEMPORARY) for part in path.parts)
