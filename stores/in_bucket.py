# pyright: basic
"""Sealed files below a prefix of a bucket; paths below the lake's folder are their names.

The folder itself holds local files (journals, locks, work) and verified copies of files that a
trainer or an engine opens.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from . import durable, sealed, sealing, verified
from .bucket import Bucket, polars_options
from .far_rows import FarRows, far_rows
from .piece_hashes import Some
from .reading_ahead import AT_ONCE, read_ahead
from .sealed import MANIFEST, DamagedError, HashedFile
from .verified import SealedFile

T = TypeVar("T")


class InBucket:
    """Sealed files below a prefix of a bucket; the lake's `folder` holds the copies."""

    at_once = AT_ONCE

    def __init__(self, url: str, folder: Path) -> None:
        self._bucket = Bucket(url)
        self._folder = folder

    def at(self, path: Path) -> str:
        """Return the object's address."""
        return self._bucket.at(self._name(path))

    def write_stage_file(self, folder: Path, table: pa.Table) -> HashedFile:
        """Upload a stage file."""
        rows = sealing.encoded_stage(table)
        self._bucket.put(f"{self._name(folder)}/{rows.sha256}.parquet", memoryview(rows.data))
        return rows.file

    def publish(self, path: Path) -> None:
        """Upload the local copy of a file or folder, the manifest last."""
        files = [path] if path.is_file() else [file for _, file in sealed.files_below(path)]
        _each(self._upload, files)
        if (path / MANIFEST).exists():
            self._upload(path / MANIFEST)

    def read_part(self, path: Path, sha256: str) -> pa.Table:
        """Read a sealed table."""
        return sealed.parsed_part(self._bucket.read(self._name(path)), self.at(path), sha256)

    def read_parts(self, files: Iterable[tuple[Path, int]]) -> Iterator[pa.Table]:
        """Read sealed tables, fetching the next ones meanwhile."""

        def fetch(file: tuple[Path, int]) -> tuple[Path, bytes]:
            return file[0], self._bucket.read(self._name(file[0]))

        with closing(read_ahead(fetch, files, size=lambda file: file[1])) as fetched:
            for path, data in fetched:
                yield sealed.parsed_part(data, self.at(path), path.stem)

    def check_part(self, path: Path) -> None:
        """Hash a sealed table."""
        if self._bucket.sha256(self._name(path)) != path.stem:
            raise DamagedError(
                f"{self.at(path)} was altered: its bytes do not match the hash in its name"
            )

    def sha256(self, path: Path) -> str:
        """Hash an object."""
        return self._bucket.sha256(self._name(path))

    def check_folder(self, path: Path) -> None:
        """Hash every object of a folder in the bucket."""
        listed = self._listed(path)
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
        data = self._bucket.read(self._name(path))
        durable.make_folder(path.parent)
        durable.write_file(path, data)
        return path

    def readable(self, paths: Iterable[Path]) -> list[Path]:  # noqa: ARG002 -- the protocol's
        """Return no paths: objects are not local files."""
        return []

    def dataset(self, files: Sequence[tuple[Path, int]], schema: pa.Schema) -> FarRows | None:
        """Return sealed tables, without hashing the pieces that are read, as in `scan`."""
        places = [(self._bucket.place(self._name(path)), size) for path, size in files]
        if not places:
            return None
        (filesystem, _), _ = places[0]
        return far_rows(filesystem, [(place, size) for (_, place), size in places], schema)

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
        names = self._bucket.listed(f"{self._name(folder)}/")
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
        """Hash objects that are new to this process, where they lie."""
        verified.verify(self._sealed(paths), AT_ONCE)

    def scan(
        self,
        paths: Sequence[Path],
        some: Some | None = None,  # noqa: ARG002 -- the protocol's
        **options: Any,
    ) -> pl.LazyFrame:
        """Return the rows of Parquet files, fetching only the pieces that the query needs.

        They are not hashed, which would need whole files: the store checks its data itself.
        """
        places = [self.at(path) for path in paths]
        return verified.trust(places, storage_options=polars_options(), **options)

    def _sealed(self, paths: Sequence[Path]) -> list[SealedFile]:
        """Return objects with their listed state; an object is only ever replaced as a whole."""
        folders = {path.parent for path in paths}
        names = (f"{self._name(folder)}/" for folder in folders)
        listed = {k: v for name in names for k, v in self._bucket.listed(name).items()}
        return [
            SealedFile(
                place=self.at(path),
                expected=path.stem,
                look=partial(listed.get, self._name(path)),
                sha256=partial(self._bucket.sha256, self._name(path)),
            )
            for path in paths
        ]

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _upload(self, path: Path) -> None:
        self._bucket.put_file(self._name(path), path)

    def _listed(self, path: Path) -> dict[Path, str]:
        """Return the SHA-256 of each file that a folder's manifest lists."""
        manifest = self._bucket.read(self._name(path / MANIFEST))
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
        listed = self._listed(path)
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
