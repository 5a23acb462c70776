# pyright: basic
"""The storage of a run's sealed files: its folder on disk, or a prefix of a bucket.

`objects_of` chooses. Both take paths below the run's folder, and publish in the same order: a
file is whole under its name before anything refers to it, and a folder counts once its manifest,
which is written last, exists. For a run in a bucket the folder itself holds local files (journals,
locks, work) and verified copies of files that a trainer or an engine opens.
"""

import hashlib
import json
import secrets
import shlex
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from . import durable, sealed, verified
from .address import bucket_of
from .bucket import AT_ONCE, Bucket, BucketError, polars_options
from .sealed import MANIFEST, DamagedError
from .verified import EncodedRows, Some

AHEAD_BYTES = 128 * 2**20
"""The most bytes that are fetched and not yet yielded, unless a single thing is larger."""

T = TypeVar("T")
R = TypeVar("R")


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

    def read_part(self, path: Path, sha256: str) -> pa.Table:
        """Read a sealed table, its bytes verified.

        Raises:
            DamagedError: if the file is missing or altered.
        """
        return sealed.parsed_part(self._read(path), self.at(path), sha256)

    def read_parts(self, files: Iterable[tuple[Path, int]]) -> Iterator[pa.Table]:
        """Read sealed tables, each with its size, one after another; some are fetched ahead.

        Raises:
            DamagedError: at the first that is missing or altered.
        """
        return (self.read_part(path, path.stem) for path, _ in files)

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

    def missing(self, paths: Iterable[Path]) -> Path | None:
        """Return the first file that is not there."""
        return next((path for path in paths if not path.exists()), None)

    def files(self, folder: Path) -> list[Path]:
        """Return the files in a folder, sorted."""
        return sorted(folder.glob("[!.]*"))

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

    def verify(self, paths: Sequence[Path], some: Some | None = None) -> None:
        """Prove that sealed tables are unaltered; what this process hashed before is not read.

        With `some`, no more than that must be proved.

        Raises:
            DamagedError: naming the first that is missing or altered.
        """
        if some is None:
            verified.verify((path, path.stem) for path in paths)
        else:
            verified.verify_some(paths, some)

    def scan(self, paths: Sequence[Path], some: Some | None = None, **options: Any) -> pl.LazyFrame:
        """Return the rows of sealed tables, one after another, once they are verified.

        With `some`, only these pieces may be read and are verified. Options are `scan_parquet`'s.

        Raises:
            DamagedError: naming the first that is missing or altered.
        """
        self.verify(paths, some)
        return pl.scan_parquet(list(map(str, paths)), **options)

    def _write(self, path: Path, data: bytes) -> None:
        durable.make_folder(path.parent)
        durable.write_file(path, data, "stage_file")

    def _read(self, path: Path) -> bytes:
        return sealed.read_file(path)


class InBucket(Objects):
    """Sealed files below a prefix of a bucket; the lake's `folder` holds the copies."""

    at_once = AT_ONCE
    local = False

    def __init__(self, url: str, folder: Path) -> None:
        self._bucket = Bucket(url)
        self._folder = folder

    def at(self, path: Path) -> str:
        """Return the object's address."""
        return self._bucket.at(self._name(path))

    def publish(self, path: Path) -> None:
        """Upload the local copy of a file or folder, the manifest last."""
        files = [path] if path.is_file() else [file for _, file in sealed.files_below(path)]
        _each(self._upload, files)
        if (path / MANIFEST).exists():
            self._upload(path / MANIFEST)

    def read_parts(self, files: Iterable[tuple[Path, int]]) -> Iterator[pa.Table]:
        """Read sealed tables, fetching the next ones meanwhile."""

        def fetch(file: tuple[Path, int]) -> tuple[Path, bytes]:
            return file[0], self._read(file[0])

        with closing(read_ahead(fetch, files, size=lambda file: file[1])) as fetched:
            for path, data in fetched:
                yield sealed.parsed_part(data, self.at(path), path.stem)

    def sha256(self, path: Path) -> str:
        """Hash an object."""
        return self._bucket.sha256(self._name(path))

    def check_folder(self, path: Path) -> None:
        """Hash every object of a folder in the bucket."""
        listed = self._read_manifest(path)
        for file in self.sizes(path):
            if file not in {*listed, path / MANIFEST}:
                raise DamagedError(f"{self.at(file)} was added after {self.at(path)} was published")
        hashes = _each(lambda file: self._bucket.sha256(self._name(file)), listed)
        self._compare(listed, dict(zip(listed, hashes, strict=True)))

    def local_folder(self, path: Path) -> Path:
        """Return the local copy; a missing or damaged one is fetched again."""
        try:
            sealed.check_folder(path, sha256=sealed.known_sha256)
        except DamagedError:
            if path.exists():
                durable.remove(path)
            self._fetch(path)
        return path

    def local_file(self, path: Path) -> Path:
        """Return a fresh copy."""
        data = self._read(path)
        durable.make_folder(path.parent)
        durable.write_file(path, data)
        return path

    def missing(self, paths: Iterable[Path]) -> Path | None:
        """List each folder once, and return the first path that is not listed."""
        there = dict[Path, set[Path]]()
        for path in paths:
            if path.parent not in there:
                there[path.parent] = set(self.files(path.parent))
            if path not in there[path.parent]:
                return path
        return None

    def files(self, folder: Path) -> list[Path]:
        """List the objects in a folder."""
        names = self._bucket.list_objects(f"{self._name(folder)}/")
        return [path for name in names if (path := self._folder / name).parent == folder]

    def sizes(self, below: Path) -> dict[Path, int]:
        """Return the size of each object."""
        found = self._bucket.sizes("" if below == self._folder else self._name(below))
        return {self._folder / name: size for name, size in found.items()}

    def discard(self, paths: Sequence[Path]) -> None:
        """Remove objects and their local copies."""
        for path in filter(Path.exists, paths):
            durable.remove(path)
        _each(lambda path: self._bucket.delete(self._name(path)), paths)

    def remove(self, path: Path) -> None:
        """Remove an object or folder, its manifest first, and the local copy."""
        if path.exists():
            durable.remove(path)
        found = self.sizes(path)
        first = [file for file in found if file == path / MANIFEST]
        for files in (first, [file for file in found if file not in first]):
            _each(lambda file: self._bucket.delete(self._name(file)), files)

    def quarantine(self, path: Path, folder: Path) -> None:
        """Copy an object or folder aside, then remove it."""
        aside = folder / f"{secrets.token_hex(4)}-{path.name}"
        moves = [(file, aside / file.relative_to(path)) for file in self.sizes(path)]
        _each(lambda move: self._bucket.copy(self._name(move[0]), self._name(move[1])), moves)
        self.remove(path)

    def verify(self, paths: Sequence[Path], some: Some | None = None) -> None:  # noqa: ARG002
        """Hash objects where they lie."""
        _each(self.check_part, paths)

    def scan(self, paths: Sequence[Path], some: Some | None = None, **options: Any) -> pl.LazyFrame:
        """Return the rows of Parquet files, fetching only the pieces that the query needs.

        They are not hashed, which would need whole files: the store checks its data itself.
        """
        del some
        return pl.scan_parquet(
            list(map(self.at, paths)), storage_options=polars_options(), **options
        )

    def _write(self, path: Path, data: bytes) -> None:
        self._bucket.put(self._name(path), data)

    def _read(self, path: Path) -> bytes:
        return self._bucket.read(self._name(path))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _upload(self, path: Path) -> None:
        self._bucket.put_file(self._name(path), path)

    def _read_manifest(self, path: Path) -> dict[Path, str]:
        """Return the SHA-256 of each file that a folder's manifest lists."""
        manifest = self._read(path / MANIFEST)
        if hashlib.sha256(manifest).hexdigest() != path.name:
            raise DamagedError(f"{self.at(path)} lacks a valid {MANIFEST}")
        return {path / entry["name"]: entry["sha256"] for entry in json.loads(manifest)}

    def _compare(self, listed: dict[Path, str], found: dict[Path, str]) -> None:
        for file, sha256 in listed.items():
            if found[file] != sha256:
                raise DamagedError(f"{self.at(file)} was altered: {MANIFEST} has another hash")

    def _fetch(self, path: Path) -> None:
        """Download a folder; it is renamed into place once all its files are verified.

        Raises:
            DamagedError: if it is incomplete or altered in the bucket.
        """
        listed = self._read_manifest(path)
        draft = path.parent / f"{durable.TEMPORARY}{secrets.token_hex(8)}"
        drafts = {file: draft / file.relative_to(path) for file in listed}
        try:
            for folder in {draft, *(file.parent for file in drafts.values())}:
                durable.make_folder(folder)
            _each(lambda file: self._bucket.download(self._name(file), drafts[file]), listed)
            self._compare(listed, {file: sealed.known_sha256(drafts[file]) for file in listed})
            durable.publish_folder(draft, path.parent)
        finally:
            if draft.exists():
                durable.remove(draft)


def _each(action: Callable[[T], Any], things: Iterable[T]) -> list[Any]:
    """Apply `action` to each, several at a time; raise the first error after all have ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [future.result() for future in [pool.submit(action, thing) for thing in things]]


def read_ahead(
    fetch: Callable[[T], R], things: Iterable[T], size: Callable[[T], int]
) -> Generator[R]:
    """Yield the results of `fetch` for things of `size` bytes; an error comes in order.

    When the reader stops, the remaining requests are cancelled.
    """
    waiting = deque[tuple[Future[R], int]]()
    ahead = 0
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        for thing in things:
            while waiting and (len(waiting) == AT_ONCE or ahead + size(thing) > AHEAD_BYTES):
                fetched, bytes_ = waiting.popleft()
                yield fetched.result()
                ahead -= bytes_
            waiting.append((pool.submit(fetch, thing), size(thing)))
            ahead += size(thing)
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(cancel_futures=True)


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
    return Objects() if url is None else InBucket(url, folder.parent.parent)


def _is_temporary(path: Path) -> bool:
    return any(part.startswith(durable.TEMPORARY) for part in path.parts)
