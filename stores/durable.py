# pyright: basic
"""Every durable write of lpfloop: files that are either whole under their final name, or not there.

Order of each publication: write to a temporary name, fsync the file, rename, fsync the folder; only
then may the journal refer to it. Published names are content hashes, so a repeated publication is
idempotent. No other module opens a file of the lake for writing (a test enforces it).
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MANIFEST = "MANIFEST.json"
TEMPORARY = ".tmp-"


class DamagedError(OSError):
    """A published file that is missing, or whose bytes are not those that were committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A sealed Parquet file, named by the SHA-256 of its bytes."""

    sha256: str
    rows: int
    size: int


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make the bytes of a file that another process wrote survive a power loss."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> Path:
    """Create `folder` and its parents durably, readable by their owner only."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)
    return folder


def write_file(path: Path, data: bytes) -> None:
    """Publish `data` as `path`, replacing what is there, atomically."""
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{path.name}"
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def write_part(folder: Path, table: pa.Table) -> PartFile:
    """Seal `table` as `folder/<sha256>.parquet` and return what was written."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    data = sink.getvalue().to_pybytes()
    sha256 = hashlib.sha256(data).hexdigest()
    write_file(folder / f"{sha256}.parquet", data)
    return PartFile(sha256=sha256, rows=table.num_rows, size=len(data))


def read_part(path: Path, sha256: str) -> pa.Table:
    """Read a sealed part, its bytes checked against their hash first.

    Raises:
        DamagedError: if the file is missing or altered.
    """
    if not path.exists():
        raise DamagedError(f"{path} is missing, although the journal refers to it")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DamagedError(f"{path} was altered: its bytes do not match the hash in its name")
    return pq.read_table(pa.BufferReader(data))


def publish_folder(source: Path, parent: Path) -> str:
    """Move the whole folder `source` to `parent/<hash of its manifest>` and return that hash.

    The manifest lists name, size and SHA-256 of every file, so equal content gets an equal name.
    """
    manifest = json.dumps(
        [
            {"name": name, "size": path.stat().st_size, "sha256": file_sha256(path)}
            for name, path in _files(source)
        ],
        indent=1,
    ).encode()
    identity = hashlib.sha256(manifest).hexdigest()
    for _, path in _files(source):
        sync_file(path)
    write_file(source / MANIFEST, manifest)
    for folder in sorted((p for p in source.rglob("*") if p.is_dir()), reverse=True):
        sync_folder(folder)
    target = parent / identity
    if target.exists():
        shutil.rmtree(source)
    else:
        source.rename(target)
    sync_folder(parent)
    return identity


def check_folder(folder: Path) -> None:
    """Prove that a published folder is whole and unaltered.

    Raises:
        DamagedError: naming the first file that is missing or does not match the manifest.
    """
    manifest = folder / MANIFEST
    if not manifest.exists() or hashlib.sha256(manifest.read_bytes()).hexdigest() != folder.name:
        raise DamagedError(f"{folder} has no valid {MANIFEST}")
    for entry in json.loads(manifest.read_bytes()):
        path = folder / entry["name"]
        if not path.exists() or file_sha256(path) != entry["sha256"]:
            raise DamagedError(f"{path} is missing or was altered")


def sweep(folder: Path) -> None:
    """Remove temporary files that an interrupted write left below `folder`."""
    for path in folder.rglob(f"{TEMPORARY}*"):
        path.unlink()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            yield path.relative_to(folder).as_posix(), path
