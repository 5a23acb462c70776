# pyright: basic
"""The lease on a run of a bucket, and snapshots of its journal for the next machine.

Heads are the machines that work on the run, one after the other, each under an epoch.

Whoever opens a run to write takes the next epoch by writing `heads/EPOCH.json`, on the condition
that it does not exist: of two machines one succeeds. Nothing removes these objects, so a head whose
epoch is not the newest any more notices this by one request, and stops. While a head lives, it
rewrites its beat, `heads/EPOCH.beat`, each minute (`LeaseKeeper`).

`heads.json` on the machine lists its own epochs: only the machine with the newest epoch may take
the next. `lpfloop takeover` takes it on another machine.

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
import socket
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pyarrow as pa

from .address import BucketError, OutOfReachError
from .bucket import Bucket
from .durable import write_file
from .failpoints import reach
from .journal_file import journal_copy, temporary_file
from .lock import FencedError
from .sealed import DamagedError, file_sha256

if TYPE_CHECKING:
    from .journal import Journal

HEADS = "heads"
OWN_HEADS = "heads.json"
BEAT_S = 60.0
ALIVE_S = 300.0
"""A head may live if its beat is younger than this."""
FEW = 32
"""The most objects that are removed after each check that the epoch is still the newest."""


class TakenOverError(FencedError):
    """Another machine has taken the run over."""

    code = "LPF-217"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The process that took an epoch, and when (seconds of the epoch, by its own clock)."""

    epoch: int
    token: str
    host: str
    pid: int
    at: float

    @classmethod
    def here(cls, epoch: int) -> "Head":
        """Return this process as the head of an epoch."""
        return cls(
            epoch=epoch,
            token=secrets.token_hex(16),
            host=socket.gethostname(),
            pid=os.getpid(),
            at=time.time(),
        )

    @property
    def name(self) -> str:
        """The name of its object."""
        return f"{HEADS}/{self.epoch:08}.json"

    @property
    def beat(self) -> str:
        """The name of its beat."""
        return f"{HEADS}/{self.epoch:08}.beat"

    def as_bytes(self) -> bytes:
        """Return it as a JSON document."""
        return json.dumps(asdict(self)).encode()

    def describe(self) -> str:
        """Describe the head for a message."""
        when = time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(self.at))
        return f"{self.host} at {when} (epoch {self.epoch})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLease:
    """The epoch under which this process works on a run of a bucket."""

    bucket: Bucket
    head: Head

    def check(self) -> None:
        """Ask the bucket whether this head's epoch is still the newest.

        Raises:
            TakenOverError: if another machine has taken the run over.
            OutOfReachError: if the bucket does not answer.
        """
        following = f"{HEADS}/{self.head.epoch + 1:08}.json"
        if self.bucket.exists(following):
            raise _taken_over_error(self.bucket, newest_head(self.bucket), "this head stops")

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects that were listed before, as long as this head's epoch is the newest.

        The epoch is checked after the listing, so that no object of a later head is removed, and
        again before each few, because a later head may need objects of the same names.

        Raises:
            TakenOverError: if another machine has taken the run over.
            OutOfReachError: if the bucket does not answer.
        """
        for first in range(0, len(names), FEW):
            self.check()
            for name in names[first : first + FEW]:
                self.bucket.delete(name)

    def give_sign(self, *, ended: bool = False) -> None:
        """Write the beat: this head lives, or has ended cleanly."""
        self.bucket.put(self.head.beat, json.dumps({"at": time.time(), "ended": ended}).encode())


def run_bucket(url: str, folder: Path) -> Bucket:
    """Return the bucket with the objects of the run at `folder`, in the lake at `url`."""
    return Bucket(f"{url}/runs/{folder.name}")


def take_lease(url: str, folder: Path) -> RunLease:
    """Take the next epoch of the run at `folder` if this machine has the newest.

    Raises:
        TakenOverError: if another machine has the newest, or took the next at the same moment.
        BucketError: if the bucket cannot be used, or ignores conditional writes.
    """
    bucket = run_bucket(url, folder)
    newest = newest_head(bucket)
    if newest is not None and not is_own(folder, newest):
        raise _taken_over_error(bucket, newest, "this machine no longer owns it")
    return take_epoch(folder, bucket, newest)


def take_epoch(folder: Path, bucket: Bucket, newest: Head | None) -> RunLease:
    """Take the epoch that follows the newest.

    Raises:
        TakenOverError: if another machine took it first.
        BucketError: if the store ignores conditional writes.
    """
    head = Head.here(1 if newest is None else newest.epoch + 1)
    # Noted here first: a process killed in between recognises either epoch as its own.
    own = [newest] if newest is not None and is_own(folder, newest) else []
    heads = json.dumps([asdict(each) for each in (*own, head)])
    write_file(folder / OWN_HEADS, heads.encode())
    reach("head.take.before")
    if not bucket.create(head.name, head.as_bytes()):
        found = newest_head(bucket)
        if found is None or found.token != head.token:
            raise _taken_over_error(bucket, found, "this machine came second")
    elif bucket.create(head.name, b"{}"):
        bucket.put(head.name, head.as_bytes())
        raise BucketError(
            f"{bucket.url} ignores conditions of writes (If-None-Match: *), so two machines could "
            "work on one run: use a store that supports them"
        )
    reach("head.take.after")
    lease = RunLease(bucket=bucket, head=head)
    lease.give_sign()
    return lease


def newest_head(bucket: Bucket) -> Head | None:
    """Return the head with the newest epoch of a run; None if no epoch was ever taken."""
    names = [name for name in bucket.sizes(HEADS) if name.endswith(".json")]
    return Head(**json.loads(bucket.read(max(names)))) if names else None


def is_own(folder: Path, head: Head) -> bool:
    """Whether this machine took an epoch of the run at `folder`."""
    try:
        own: list[dict[str, Any]] = json.loads((folder / OWN_HEADS).read_bytes())
    except FileNotFoundError:
        return False
    return head.token in {each["token"] for each in own}


def sign_of_life_s(bucket: Bucket, head: Head) -> float | None:
    """Return the age of a head's beat in seconds; None if it ended cleanly or never gave one."""
    found = bucket.list_objects(head.beat)
    if not found or json.loads(bucket.read(head.beat))["ended"]:
        return None
    return bucket.time() - found[head.beat][1]


def _taken_over_error(bucket: Bucket, head: Head | None, what: str) -> TakenOverError:
    run = bucket.url.rpartition("/")[2]
    who = "another machine" if head is None else head.describe()
    return TakenOverError(f"run {run} was taken over by {who}; {what}")


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

    `at` is the moment of the journal that it holds, `revision` the number of its commits, `size`
    its bytes in the bucket.
    """

    epoch: int
    number: int
    at: float
    revision: int
    size: int


class LeaseKeeper:
    """Keeps the lease on a run of a bucket, in a thread, until `close`.

    The thread gives a sign of life each minute. It takes a snapshot of the journal when asked, and
    every few minutes if the journal changes. While the bucket is away, it tries again and again.
    `overtaken` is the error when another machine has taken the run over.
    """

    def __init__(self, journal: "Journal", lease: RunLease) -> None:
        self.lease = lease
        self.overtaken: FencedError | None = None
        self._journal = journal
        self._turn = threading.Lock()
        self._last: LastSnapshot | None = None
        self._requested = threading.Event()
        self._ending = self._away = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="lease", daemon=True)

    def start(self) -> None:
        """Start the thread."""
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

    def take_snapshot(self) -> None:
        """Store the journal's present state in the bucket, unless it is there already.

        On return this head's epoch is still the newest, so objects that the snapshot does not refer
        to may be removed: a takeover from now on finds the snapshot.

        Raises:
            TakenOverError: if another machine has taken the run over.
            OutOfReachError: if the bucket does not answer.
        """
        with self._turn, self._fencing():
            if self._last is None or self._last.revision != self._journal.revision:
                self.lease.check()
                self._last = self._upload()
                taken = json.dumps(asdict(self._last)).encode()
                write_file(self._journal.folder / TAKEN, taken)
            self.lease.check()

    def close(self) -> None:
        """End the thread, store the last commits in the bucket, and give the final sign of life."""
        self._ending = True
        self._requested.set()
        self._thread.join()
        if self.overtaken is not None:
            return  # An overtaken process must not write.
        try:
            self.take_snapshot()
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

    def _work(self) -> None:
        try:
            self._keep()
        except FencedError:
            self._journal.on_taken_over()
        except Exception as error:  # noqa: BLE001 -- carried to the thread that asks next
            self._failure = error

    def _keep(self) -> None:
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
                    self.lease.give_sign()
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

    def _upload(self) -> LastSnapshot:
        lease, at, revision = self.lease, time.time(), self._journal.revision
        bucket, folder = lease.bucket, self._journal.folder
        reach("snapshot.before")
        with temporary_file(folder, "snapshot") as draft:
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
            revision=revision,
            size=snapshot.size,
        )


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
    with temporary_file(path.parent, "snapshot") as draft:
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
