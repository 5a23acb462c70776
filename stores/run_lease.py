"""Heads: the machines that work on a run of a bucket, one after the other, each under an epoch.

Whoever opens a run to write takes the next epoch by writing `heads/EPOCH.json`, on the condition
that it does not exist: of two machines one succeeds. Nothing removes these objects, so a head whose
epoch is not the newest any more notices this by one request, and stops. While a head lives, it
rewrites its beat, `heads/EPOCH.beat`, each minute (`journal_snapshots.LeaseKeeper`).

`heads.json` on the machine lists its own epochs: only the machine with the newest epoch may take
the next. `lpfloop takeover` takes it on another machine.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .address import bucket_of
from .bucket import Bucket, BucketError
from .durable import write_file
from .failpoints import reach
from .lock import FencedError

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
        if not self.bucket.exists(following):
            return
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


def take_lease(folder: Path) -> RunLease | None:
    """Take the next epoch of the run at `folder` if this machine has the newest; None for a folder.

    Raises:
        TakenOverError: if another machine has the newest, or took the next at the same moment.
        BucketError: if the bucket cannot be used, or ignores conditional writes.
    """
    url = bucket_of(folder.parent.parent)
    if url is None:
        return None
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
