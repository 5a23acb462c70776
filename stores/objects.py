# pyright: basic
"""The storage of a run's sealed files: its folder on disk, or a prefix of a bucket.

`objects_of` chooses. Both take paths below the run's folder, and publish in the same order: a
file is whole under its name before anything refers to it, and a folder counts once its manifest,
which is written last, exists.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

from . import durable, sealed, sealing, verified
from .address import bucket_of
from .bucket import BucketError
from .far_rows import FarRows
from .in_bucket import InBucket
from .piece_hashes import Some
from .sealed import DamagedError, HashedFile


class Objects(Protocol):
    """The sealed files of a run, each under a path below its folder.

    `at_once` is the number of files to hash concurrently.
    """

    at_once: int

    def at(self, path: Path) -> str:
        """Return its place, for messages."""
        ...

    def write_stage_file(self, folder: Path, table: pa.Table) -> HashedFile:
        """Write a table as `folder/<sha256>.parquet`; it is durable when this returns."""
        ...

    def publish(self, path: Path) -> None:
        """Publish a whole and durable file or folder of the run's own folder."""
        ...

    def read_part(self, path: Path, sha256: str) -> pa.Table:
        """Read a sealed table, its bytes verified.

        Raises:
            DamagedError: if the file is missing or altered.
        """
        ...

    def read_parts(self, files: Iterable[tuple[Path, int]]) -> Iterator[pa.Table]:
        """Read sealed tables, each with its size, one after another; some are fetched ahead.

        Raises:
            DamagedError: at the first that is missing or altered.
        """
        ...

    def check_part(self, path: Path) -> None:
        """Prove that a sealed table has the hash that is its name.

        Raises:
            DamagedError: if the file is missing or altered.
        """
        ...

    def sha256(self, path: Path) -> str:
        """Hash a published file.

        Raises:
            DamagedError: if it is missing.
        """
        ...

    def check_folder(self, path: Path) -> None:
        """Prove that a published folder is whole and unaltered, without copying it.

        Raises:
            DamagedError: naming the missing or altered file.
        """
        ...

    def local_folder(self, path: Path) -> Path:
        """Return a published folder as a local one, every byte verified.

        Raises:
            DamagedError: if it is missing or altered.
        """
        ...

    def local_file(self, path: Path) -> Path:
        """Return a published file as a local one, not verified.

        Raises:
            DamagedError: if it is missing.
        """
        ...

    def readable(self, paths: Iterable[Path]) -> list[Path]:
        """Return the paths if another library can open them as local files, else none."""
        ...

    def dataset(self, files: Sequence[tuple[Path, int]], schema: pa.Schema) -> FarRows | None:
        """Return sealed tables, each with its size, for a library to read in the bucket.

        None if it can open them as local files.
        """
        ...

    def missing(self, paths: Iterable[Path]) -> Path | None:
        """Return the first file that is not there."""
        ...

    def files(self, folder: Path) -> list[Path]:
        """Return the files in a folder, sorted."""
        ...

    def sizes(self, below: Path) -> dict[Path, int]:
        """Return the size of each file below a folder, or of the one file; {} if none is there."""
        ...

    def discard(self, paths: Sequence[Path]) -> None:
        """Remove files of one folder, if they are there."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file or folder, if it is there; a partly removed folder never looks whole."""
        ...

    def quarantine(self, path: Path, folder: Path) -> None:
        """Put a damaged file or folder, if it is there, into `folder`."""
        ...

    def verify(self, paths: Sequence[Path], some: Some | None = None) -> None:
        """Prove that sealed tables are unaltered; what this process hashed before is not read.

        With `some`, no more than that must be proved.

        Raises:
            DamagedError: naming the first that is missing or altered.
        """
        ...

    def scan(self, paths: Sequence[Path], some: Some | None = None, **options: Any) -> pl.LazyFrame:
        """Return the rows of sealed tables, one after another, once they are verified.

        With `some`, only these pieces may be read and are verified. Options are `scan_parquet`'s.

        Raises:
            DamagedError: naming the first that is missing or altered.
        """
        ...


class OnDisk:
    """Sealed files in the run's folder."""

    at_once = verified.AT_ONCE

    def at(self, path: Path) -> str:
        """Return the path."""
        return str(path)

    def write_stage_file(self, folder: Path, table: pa.Table) -> HashedFile:
        """Write a stage file."""
        rows = sealing.encoded_stage(table)
        place = durable.make_folder(folder) / f"{rows.sha256}.parquet"
        durable.write_file(place, rows.data, "stage_file")
        return rows.file

    def publish(self, path: Path) -> None:
        """Do nothing: it is already in place."""

    def read_part(self, path: Path, sha256: str) -> pa.Table:
        """Read a sealed table."""
        return sealed.read_part(path, sha256)

    def read_parts(self, files: Iterable[tuple[Path, int]]) -> Iterator[pa.Table]:
        """Read one sealed table after another."""
        return (sealed.read_part(path, path.stem) for path, _ in files)

    def check_part(self, path: Path) -> None:
        """Hash a sealed table."""
        sealed.check_part(path)

    def sha256(self, path: Path) -> str:
        """Hash a file."""
        return sealed.file_sha256(path)

    def check_folder(self, path: Path) -> None:
        """Hash every file of a folder."""
        sealed.check_folder(path)

    def local_folder(self, path: Path) -> Path:
        """Return the folder itself, proved unaltered."""
        sealed.check_folder(path, sha256=sealed.known_sha256)
        return path

    def local_file(self, path: Path) -> Path:
        """Return the file itself."""
        if not path.is_file():
            raise DamagedError(f"{path} is missing, although the journal refers to it")
        return path

    def readable(self, paths: Iterable[Path]) -> list[Path]:
        """Return all paths."""
        return list(paths)

    def dataset(
        self,
        files: Sequence[tuple[Path, int]],  # noqa: ARG002 -- the protocol's
        schema: pa.Schema,  # noqa: ARG002 -- the protocol's
    ) -> FarRows | None:
        """Return None."""
        return None

    def missing(self, paths: Iterable[Path]) -> Path | None:
        """Check one path after another."""
        return next((path for path in paths if not path.exists()), None)

    def files(self, folder: Path) -> list[Path]:
        """Return the files in a folder."""
        return sorted(folder.glob("[!.]*"))

    def sizes(self, below: Path) -> dict[Path, int]:
        """Return the size of each file, temporaries left out."""
        found = [below] if below.is_file() else sorted(below.rglob("*"))
        return {
            path: path.stat().st_size
            for path in found
            if path.is_file() and not _is_temporary(path.relative_to(below))
        }

    def discard(self, paths: Sequence[Path]) -> None:
        """Remove files."""
        for path in paths:
            durable.discard(path)

    def remove(self, path: Path) -> None:
        """Remove a file or folder."""
        if path.exists():
            durable.remove(path)

    def quarantine(self, path: Path, folder: Path) -> None:
        """Move a file or folder aside."""
        if path.exists():
            durable.quarantine(path, folder)

    def verify(self, paths: Sequence[Path], some: Some | None = None) -> None:
        """Hash files, or what will be read of them, that are new to this process."""
        if some is None:
            verified.verify([verified.on_disk(path, path.stem) for path in paths])
        else:
            verified.verify_some(paths, some)

    def scan(self, paths: Sequence[Path], some: Some | None = None, **options: Any) -> pl.LazyFrame:
        """Return the rows of Parquet files."""
        if some is None:
            return verified.scan([verified.on_disk(path, path.stem) for path in paths], **options)
        verified.verify_some(paths, some)
        return verified.trust(list(map(str, paths)), **options)


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
            f"{folder}: `lpfloop adopt {shlex.quote(url)} {folder.name}` continues it here; for a "
            "new run choose another name or prefix"
        )


def objects_of(folder: Path) -> Objects:
    """Return the sealed files of the run at `folder`."""
    url = bucket_of(folder.parent.parent)
    return OnDisk() if url is None else InBucket(url, folder.parent.parent)


def _is_temporary(path: Path) -> bool:
    return any(part.startswith(durable.TEMPORARY) for part in path.parts)
