"""Verified copies, on this machine, of folders that were published elsewhere.

Processes of the machine share them: one fetches while the others wait, a copy stays as long as
somebody holds it, and of the others the newest few are kept. What a process has hashed is noted,
so that the next one does not read gigabytes again.
"""

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import cast

from . import durable, sealed
from .in_bucket import InBucket

KEPT = 3
"""Copies that stay although nobody holds them; with the one that is fetched, so many and one."""

HASHES = "hashes.json"
REMEMBERED = 10_000
"""Files whose hashes are noted, those that changed last."""

HASHING, FETCHING, HELD = "hashing.lock", "fetching.lock", "held.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCopy:
    """A copy that is not removed until it is released, or its holder has ended."""

    folder: Path
    _lock: FileIO

    def release(self) -> None:
        """Let it be removed when it is among the oldest."""
        self._lock.close()


def held_copy(address: str, cache: Path) -> HeldCopy:
    """Return a whole and unaltered copy of a folder in a bucket, fetched unless it is there.

    Raises:
        DamagedError: if the folder is not whole in the bucket.
        BucketError: if that cannot be asked.
    """
    parent, _, name = address.rpartition("/")
    entry = durable.make_folder(cache / name)
    with _locked(entry / FETCHING), ExitStack() as undone:
        # A download that was killed.
        durable.sweep(entry)
        held = undone.enter_context(_open(entry / HELD))
        fcntl.flock(held, fcntl.LOCK_SH)
        if not (entry / name).is_dir():
            _make_room(cache)
        _recall(cache)
        folder = InBucket(parent, entry).local_folder(entry / name)
        _note(cache)
        os.utime(entry)
        undone.pop_all()
    return HeldCopy(folder=folder, _lock=held)


@contextmanager
def remembered_hashes(cache: Path) -> Generator[None]:
    """Within the block, know what other processes have hashed; note what is hashed in it.

    One process at a time is in such a block: the others then need not read the same files.
    """
    durable.make_folder(cache)
    with _locked(cache / HASHING):
        _recall(cache)
        yield
        _note(cache)


def _recall(cache: Path) -> None:
    sealed.know_hashes(_noted(cache))


def _note(cache: Path) -> None:
    """Write down what this process knows; what another notes at this moment is hashed again."""
    known = _noted(cache) | sealed.known_hashes()
    newest = sorted(known.items(), key=lambda item: item[0][-1])[-REMEMBERED:]
    data = json.dumps([[*look, sha256] for look, sha256 in newest]).encode()
    durable.write_file(cache / HASHES, data)


def _noted(cache: Path) -> dict[tuple[int, ...], str]:
    try:
        rows: list[list[int | str]] = json.loads((cache / HASHES).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return {cast("tuple[int, ...]", tuple(look)): str(sha256) for *look, sha256 in rows}


def _make_room(cache: Path) -> None:
    """Remove the oldest copies that nobody holds, or is about to."""
    entries = [held.parent for held in cache.glob(f"*/{HELD}")]
    copies = [entry for entry in entries if (entry / entry.name).is_dir()]
    copies.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    for entry in copies[KEPT:]:
        with _open(entry / FETCHING) as fetching, _open(entry / HELD) as held:
            if _taken(fetching) and _taken(held):
                durable.remove(entry / entry.name)


def _taken(file: FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with _open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open(path: Path) -> FileIO:
    """Open a file to lock it; children do not inherit that."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb", buffering=0)
