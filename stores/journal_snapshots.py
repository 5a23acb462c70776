# pyright: basic
"""Snapshots of a run's journal in its bucket: from one of them, another machine can go on.

A snapshot is the whole journal at one moment, compressed. Its name has the epoch of the head that
took it, its number and the SHA-256 of its bytes; the last two are kept. It is written through a
temporary file in the journal's folder, because it may exceed the memory. A thread takes one when a
stage is over and every few minutes, and no work waits for it. All objects that the newest snapshot
refers to are in the bucket: they are sealed before the journal refers to them, and removed only
after a snapshot that does not refer to them.
"""

import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pyarrow as pa

from .bucket import Bucket, OutOfReachError
from .durable import TEMPORARY, write_file
from .failpoints import reach
from .journal_file import journal_copy
from .lock import FencedError
from .run_lease import BEAT_S, RunLease
from .sealed import DamagedError, file_sha256

if TYPE_CHECKING:
    from .journal import Journal

SNAPSHOTS = "journal"
TAKEN = "snapshot.json"
KEPT = 2
CODEC = "zstd"
BLOCK = 4 << 20
RETRY_S = 10.0
MINUTES = 5.0
REST = 9
"""At most one part in ten of the time goes into snapshots, however short the stages are."""
NICENESS = 10
_NAME = re.compile(rf"{SNAPSHOTS}/(\d{{8}})-(\d{{8}})-([0-9a-f]{{64}})\.sqlite\.{CODEC}")


logger = logging.getLogger("lpfloop.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot in a bucket; `changed` is when it was written (seconds, by the bucket's clock)."""

    epoch: int
    number: int
    sha256: str
    size: int = 0
    changed: float = 0.0

    @property
    def name(self) -> str:
        """The name of its object."""
        return f"{SNAPSHOTS}/{self.epoch:08}-{self.number:08}-{self.sha256}.sqlite.{CODEC}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSnapshot:
    """This machine's record of its last good snapshot.

    `at` is the moment of the journal that it holds; `seconds` is how long it took, `size` its bytes
    in the bucket; `whole`: nothing was committed after it.
    """

    epoch: int
    number: int
    at: float
    seconds: float
    size: int
    whole: bool = False


class LeaseKeeper:
    """Keeps the lease on a run of a bucket, in a thread, until `close`; nothing without a lease.

    The thread gives a sign of life each minute. It takes a snapshot of the journal when asked, and
    every few minutes if the journal changes. While the bucket is away, it tries again and again.
    `overtaken` is the error when another machine has taken the run over.
    """

    def __init__(self, journal: "Journal", lease: RunLease | None) -> None:
        self.lease = lease
        self.overtaken: FencedError | None = None
        self._journal = journal
        self._turn = threading.Lock()
        self._stored: int | None = None
        self._last: LastSnapshot | None = None
        self._requested = threading.Event()
        self._ending = self._away = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, args=(lease,), name="lease", daemon=True)
        if lease is not None:
            before = last_snapshot(journal.folder)
            if before is not None and before.whole:
                self._note(replace(before, whole=False))
            self._thread.start()

    def ask(self) -> None:
        """Request a snapshot from the thread."""
        self._requested.set()

    def require_head(self) -> None:
        """Require that this process is still the run's head; before any removal.

        Raises:
            TakenOverError: if another machine has taken the run over.
            OutOfReachError: if the bucket does not answer: another machine may hold the run by now.
        """
        if self.lease is not None:
            with self._fencing():
                self.lease.check()

    def check_head(self) -> None:
        """Check that this process is still the run's head, unless the bucket is away.

        Raises:
            TakenOverError: if another machine has taken the run over.
            Exception: the error that ended the thread.
        """
        if self._failure is not None:
            raise self._failure
        if not self._away:
            with suppress(OutOfReachError):
                self.require_head()

    def take_snapshot(self, *, ending: bool = False) -> None:
        """Store the journal's present state in the bucket, unless it is there already.

        On return this head's epoch is still the newest, so objects that the snapshot does not refer
        to may be removed: a takeover from now on finds the snapshot. `ending`: nothing will be
        committed after it.

        Raises:
            TakenOverError: if another machine has taken the run over.
            OutOfReachError: if the bucket does not answer.
        """
        lease = self.lease
        if lease is None:
            return
        with self._turn, self._fencing():
            revision = self._journal.revision
            if self._last is None or self._stored != revision:
                lease.check()
                self._last, self._stored = self._upload(lease), revision
                self._note(self._last)
            lease.check()
            if ending:
                self._note(replace(self._last, whole=True))

    def close(self) -> None:
        """End the thread, store the last commits in the bucket, and give the final sign of life."""
        if self.lease is None:
            return
        self._ending = True
        self._requested.set()
        self._thread.join()
        if self.overtaken is not None:
            return  # An overtaken process must not write.
        try:
            self.take_snapshot(ending=True)
            self.lease.give_sign(ended=True)
        except FencedError:
            return
        except OSError as error:  # The bucket is away, or the disk is too full for the draft.
            logger.warning(
                "the bucket lacks a snapshot of the last commits (%s): until run %s is opened "
                "again on this machine, another one cannot read them",
                *(error, self._journal.folder.name),
            )

    @contextmanager
    def _fencing(self) -> Generator[None]:
        try:
            yield
        except FencedError as error:
            self.overtaken = error
            raise

    def _work(self, lease: RunLease) -> None:
        try:
            self._keep(lease)
        except FencedError:
            self._journal.on_taken_over()
        except Exception as error:  # noqa: BLE001 -- carried to the thread that asks next
            self._failure = error

    def _keep(self, lease: RunLease) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        due = earliest = time.monotonic()
        beat = due + BEAT_S
        while True:
            requested = self._requested.wait(max(0.0, min(due, beat) - time.monotonic()))
            if self._ending:
                return
            self._requested.clear()
            now = time.monotonic()
            if requested:
                due = min(due, max(now, earliest))
            if now >= beat:
                with suppress(OSError):  # If the bucket is away, the next sign comes in time.
                    self.require_head()
                    lease.give_sign()
                beat = now + BEAT_S
            if now >= due:
                kept = self._try_snapshot()
                ended = time.monotonic()
                earliest = ended + REST * (ended - now)
                due = max(earliest, now + (60 * MINUTES if kept else RETRY_S))

    def _try_snapshot(self) -> bool:
        """Take a snapshot; if the bucket is away or the disk full, log it once and return False."""
        try:
            self.take_snapshot()
        except (OSError, apsw.Error) as error:
            if not self._away:
                logger.warning("no snapshot of the journal for now, tried again: %s", error)
            self._away = True
            return False
        if self._away:
            logger.warning("the bucket has a snapshot of the journal again")
        self._away = False
        return True

    def _upload(self, lease: RunLease) -> LastSnapshot:
        began, at = time.monotonic(), time.time()
        bucket, folder = lease.bucket, self._journal.folder
        reach("snapshot.before")
        with _temporary(folder) as draft:
            with journal_copy(folder) as copy:
                _compress(copy, draft)
            snapshot = Snapshot(
                epoch=lease.head.epoch,
                number=1 if self._last is None else self._last.number + 1,
                sha256=file_sha256(draft),
                size=draft.stat().st_size,
            )
            bucket.put_file(snapshot.name, draft)
        reach("snapshot.after")
        lease.remove([old.name for old in snapshots(bucket)[KEPT:]])
        return LastSnapshot(
            epoch=snapshot.epoch,
            number=snapshot.number,
            at=at,
            seconds=time.monotonic() - began,
            size=snapshot.size,
        )

    def _note(self, last: LastSnapshot) -> None:
        write_file(self._journal.folder / TAKEN, json.dumps(asdict(last)).encode())


def last_snapshot(folder: Path) -> LastSnapshot | None:
    """Return this machine's record of its last snapshot of the run at `folder`."""
    try:
        return LastSnapshot(**json.loads((folder / TAKEN).read_bytes()))
    except FileNotFoundError:
        return None


def snapshots(bucket: Bucket) -> list[Snapshot]:
    """Return the snapshots of a run, the newest first."""
    found = [
        Snapshot(
            epoch=int(match[1]),
            number=int(match[2]),
            sha256=match[3],
            size=size,
            changed=changed,
        )
        for name, (size, changed) in bucket.list_objects(SNAPSHOTS).items()
        if (match := _NAME.fullmatch(name))
    ]
    return sorted(found, key=lambda each: (each.epoch, each.number), reverse=True)


def fetch(bucket: Bucket, snapshot: Snapshot, path: Path) -> bool:
    """Write a snapshot's journal to `path`; return False if the snapshot is damaged or gone."""
    with _temporary(path.parent) as draft:
        try:
            bucket.download(snapshot.name, draft)
        except DamagedError:
            return False
        if file_sha256(draft) != snapshot.sha256:
            return False
        write_file(path, _decompress(draft))
    return True


def _compress(source: Path, path: Path) -> None:
    with (
        source.open("rb") as read,
        pa.OSFile(str(path), "wb") as file,
        pa.CompressedOutputStream(file, CODEC) as stream,
    ):
        while block := read.read(BLOCK):
            stream.write(block)


def _decompress(path: Path) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.OSFile(str(path)), CODEC) as stream:
        while block := stream.read(BLOCK):
            yield block


@contextmanager
def _temporary(folder: Path) -> Generator[Path]:
    """Yield an empty temporary file in a journal's folder.

    If this process is killed, the next one that opens the journal removes the file.
    """
    path = folder / f"{TEMPORARY}{secrets.token_hex(8)}-snapshot"
    path.touch(mode=0o600, exist_ok=False)
    try:
        yield path
    finally:
        path.unlink()
