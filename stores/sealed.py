# pyright: basic
"""Reading files that durable.py published: every byte is checked before any of it is used."""

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MANIFEST = "MANIFEST.json"
BLOCK = 2**20
SETTLED_NS = 100_000_000
"""The age of a file's last change from which its times reveal a later change: clocks tick."""

_known: dict[tuple[int, ...], str] = {}
"""The hash of each large file that this process has hashed, by the file's attributes."""


class DamagedError(OSError):
    """A published file that is missing, or whose bytes differ from the committed ones."""

    code = "LPF-213"


def parse_rows(data: bytes) -> pa.Table:
    """Return the rows in the bytes of a Parquet file."""
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)


def altered_message(place: Path | str) -> str:
    """Return the message on a published file whose bytes changed."""
    return f"{place} was altered: its bytes do not have the hash they had"


def check_folder(
    folder: Path, identity: str | None = None, *, sha256: Callable[[Path], str] | None = None
) -> None:
    """Prove that a published folder is whole and unaltered, and holds nothing else.

    `identity` is the hash of its manifest; default: its name. `sha256` hashes a file; by default
    every byte is read.

    Raises:
        DamagedError: naming the first file that is missing, altered or not in the manifest.
    """
    manifest = read_file(folder / MANIFEST)
    if hashlib.sha256(manifest).hexdigest() != (identity or folder.name):
        raise DamagedError(f"{folder} lacks a valid {MANIFEST}")
    listed = {entry["name"]: entry["sha256"] for entry in json.loads(manifest)}
    for name, path in files_below(folder):
        if name not in listed or path.is_symlink():
            raise DamagedError(f"{path} was added after {folder} was published")
    for name, expected in listed.items():
        if (sha256 or file_sha256)(folder / name) != expected:
            raise DamagedError(f"{folder / name} was altered: its bytes do not match {MANIFEST}")


def manifest_of(folder: Path) -> bytes:
    """Return the manifest of a folder: name, size and SHA-256 of each file.

    Equal content gives equal bytes, so that their hash can be the folder's name.

    Raises:
        OSError: if it contains a link, which may point outside the folder.
    """
    entries = list[dict[str, str | int]]()
    for name, path in files_below(folder):
        if path.is_symlink():
            raise OSError(errno.ELOOP, "a folder with a link in it cannot be published", str(path))
        entries.append({"name": name, "size": path.stat().st_size, "sha256": known_sha256(path)})
    return json.dumps(entries, indent=1).encode()


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of all but folders, at any depth, without the folder's manifest."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name != MANIFEST and (path.is_symlink() or not path.is_dir()):
            yield name, path


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder that others may be changing."""
    below = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    size = 0
    for file in below if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            size += file.lstat().st_size
    return size


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes, read in blocks.

    Raises:
        DamagedError: if the file is missing or the disk cannot read it.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def known_sha256(path: Path, alive: Callable[[], object] = lambda: None) -> str:
    """Return the SHA-256 of a file that this process hashes once, as long as it looks the same.

    For models and checkpoints, of which each read takes minutes: a file counts as the same by its
    inode, size and times, wherever it was moved to. `alive` is called while it is read.

    Raises:
        DamagedError: if the file is missing or the disk cannot read it.
    """
    try:
        before = look_at(path)
        found = _known.get(before)
        if found is None:
            with path.open("rb", buffering=0) as file:
                found = _hash_file(file, alive)
            if look_at(path) == before and time.time_ns() - before[-1] > SETTLED_NS:
                _known[before] = found
    except OSError as error:
        raise _unreadable(path, error) from error
    return found


@contextmanager
def same_bytes(path: Path) -> Generator[None]:
    """Keep a file's known hash while only its attributes, such as the mode, are changed."""
    before = look_at(path)
    yield
    after = look_at(path)
    if before in _known and after[:-1] == before[:-1]:
        _known[after] = _known[before]


def is_known(look: tuple[int, ...], sha256: str) -> bool:
    """Whether this process has hashed a file that looks like this, with that result."""
    return _known.get(look) == sha256


def forget_hashes() -> None:
    """Make every file be hashed again at its next use."""
    _known.clear()


def look_at(path: Path) -> tuple[int, ...]:
    """Return attributes of a file that reveal a change: device, inode, size, times."""
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _hash_file(file: FileIO, alive: Callable[[], object]) -> str:
    found, block = hashlib.sha256(), bytearray(BLOCK)
    while size := file.readinto(block):
        found.update(memoryview(block)[:size])
        alive()
    return found.hexdigest()


def read_file(path: Path) -> bytes:
    """Return the bytes of a published file, not yet verified.

    Raises:
        DamagedError: if the file is missing or the disk cannot read it.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> OSError:
    """Distinguish damage from other errors, such as too many open files."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        return DamagedError(f"{path} is missing, although the journal refers to it")
    if error.errno == errno.EIO:
        return DamagedError(f"{path} cannot be read: {error.strerror}")
    return error
