# pyright: basic
"""The sealed files of a run in a bucket, and the copies of them that a machine uses.

Rows are read from verified copies in the run's folder. A file that this machine wrote is there; any
other is downloaded when it is first read.
"""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from . import durable, sealed
from .bucket import AT_ONCE, Bucket
from .objects import Objects
from .sealed import MANIFEST, DamagedError
from .verified import ALL, Some

FETCHING = "fetching"
"""The lock of the process that downloads published folders."""

T = TypeVar("T")


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

    def bring(self, paths: Sequence[Path]) -> None:
        """Download those that are not here yet.

        Raises:
            DamagedError: naming the first that is missing or altered in the bucket.
            OutOfReachError: if the bucket does not answer.
        """
        _each(self._download, [path for path in dict.fromkeys(paths) if not path.exists()])

    def read_part(self, path: Path) -> pa.Table:
        """Read the local copy of a sealed table; an altered one is downloaded again."""
        try:
            return super().read_part(path)
        except DamagedError:
            self._discard_altered([path])
            return super().read_part(path)

    def verify(self, paths: Sequence[Path], some: Some = ALL) -> None:
        """Prove that the local copies are unaltered; an altered one is downloaded again."""
        try:
            super().verify(paths, some)
        except DamagedError:
            self._discard_altered(paths)
            super().verify(paths, some)

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
        self._bucket.download(self._name(path), durable.make_folder(path.parent) / path.name)
        return path

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

    def _write(self, path: Path, data: bytes) -> None:
        self._bucket.put(self._name(path), data)
        super()._write(path, data)

    def _download(self, path: Path) -> None:
        data = self._bucket.read(self._name(path))
        if hashlib.sha256(data).hexdigest() != path.stem:
            raise DamagedError(sealed.altered_message(self.at(path)))
        super()._write(path, data)

    def _discard_altered(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if path.exists() and sealed.file_sha256(path) != path.stem:
                durable.discard(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _upload(self, path: Path) -> None:
        self._bucket.put_file(self._name(path), path)

    def _read_manifest(self, path: Path) -> dict[Path, str]:
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
        listed = self._read_manifest(path)
        draft = durable.temporary_name(path)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtFolder:
    """A copy that stays until it is released, or its process has ended."""

    folder: Path
    _lock: FileIO

    def release(self) -> None:
        """Allow another process to remove it."""
        self._lock.close()


def bring_folder(address: str, cache: Path) -> BroughtFolder:
    """Return a whole and unaltered copy of a folder in a bucket, downloaded if it is not there.

    Processes of the machine share the copies below `cache`: one downloads while the others wait.
    Before a download, copies that no process holds are removed.

    Raises:
        DamagedError: if the folder is not whole in the bucket.
        BucketError: if the bucket does not answer.
    """
    parent, _, name = address.rpartition("/")
    durable.make_folder(cache)
    with _lock(cache / FETCHING), ExitStack() as undone:
        lock = undone.enter_context(_lock_file(cache / name))
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not (cache / name).is_dir():
            _remove_unheld(cache)
        folder = InBucket(parent, cache).local_folder(cache / name)
        undone.pop_all()
    return BroughtFolder(folder=folder, _lock=lock)


def _remove_unheld(cache: Path) -> None:
    # Downloads that were killed.
    durable.sweep(cache)
    for copy in [path for path in cache.iterdir() if path.is_dir()]:
        with _lock_file(copy) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            durable.remove(copy)


@contextmanager
def _lock(path: Path) -> Generator[None]:
    with _lock_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock_file(path: Path) -> FileIO:
    """Open the file by which a path is locked; child processes do not inherit it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path.with_suffix(".lock"), flags, 0o600), "rb", buffering=0)
