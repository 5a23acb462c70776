"""Heads: the machines that work on a run of a bucket, one after the other, each under an epoch.

Whoever opens a run to write takes the next epoch by writing `heads/EPOCH.json`, on the condition
that it is not there: of two machines one does. Nothing removes these objects, so a head whose
epoch is no longer the newest sees that by one request, and stops. While a head lives, its beat,
`heads/EPOCH.beat`, is written again and again.

`heads.json` on the machine says which epochs are its own: only who has the newest may take the
next. `lpfloop adopt` takes it on another machine.
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
from .conditional_write import create_object, object_age_s
from .durable import write_file
from .failpoints import reach
from .lock import FencedError
from .sealed import DamagedError

HEADS = "heads"
OWN_HEADS = "heads.json"
BEAT_S = 60.0
ALIVE_S = 300.0
"""A head whose beat is younger may live."""
FEW = 32
"""At most this many objects are removed after a look whether the epoch is the newest still."""


class AdoptedError(FencedError):
    """Another machine has taken the run over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Who took an epoch, and when (seconds of the epoch, by its own clock)."""

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

    def told(self) -> str:
        """Say who it is."""
        when = time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(self.at))
        return f"{self.host} at {when} (epoch {self.epoch})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headship:
    """The epoch under which this process works on a run of a bucket."""

    bucket: Bucket
    head: Head

    def check(self) -> None:
        """Ask the bucket whether this head's epoch is still the newest.

        Raises:
            AdoptedError: if another machine has taken the run over.
            OutOfReachError: if the bucket does not answer.
        """
        following = f"{HEADS}/{self.head.epoch + 1:08}.json"
        if object_age_s(self.bucket.url, following) is None:
            return
        raise _adopted(self.bucket, newest_head(self.bucket), "this head stops")

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects that were listed before, as long as this head's epoch is the newest.

        It is asked for after the listing, so that nothing goes that a later head wrote, and again
        before each few, as a later head may count on objects of the same names.

        Raises:
            AdoptedError: if another machine has taken the run over.
            OutOfReachError: if the bucket does not answer.
        """
        for first in range(0, len(names), FEW):
            self.check()
            for name in names[first : first + FEW]:
                self.bucket.delete(name)

    def give_sign(self, *, ended: bool = False) -> None:
        """Write the beat: this head lives, or has ended cleanly."""
        self.bucket.put(self.head.beat, json.dumps({"at": time.time(), "ended": ended}).encode())


def run_bucket(folder: Path) -> Bucket | None:
    """Return where the objects of the run at `folder` are; None for a lake in a folder."""
    url = bucket_of(folder.parent.parent)
    return None if url is None else Bucket(f"{url}/runs/{folder.name}")


def take_headship(folder: Path) -> Headship | None:
    """Take the next epoch of the run at `folder`, as whoever has the newest; None if not a bucket.

    Raises:
        AdoptedError: if another machine has the newest, or took the next at the same moment.
        BucketError: if the bucket cannot be used, or does not keep to conditions.
    """
    bucket = run_bucket(folder)
    if bucket is None:
        return None
    newest = newest_head(bucket)
    if newest is not None and not is_own(folder, newest):
        raise _adopted(bucket, newest, "the run is no longer this machine's")
    return take_epoch(folder, bucket, newest)


def take_epoch(folder: Path, bucket: Bucket, newest: Head | None) -> Headship:
    """Take the epoch that follows the newest.

    Raises:
        AdoptedError: if another machine took it first.
        BucketError: if the store does not keep to conditions.
    """
    head = Head.here(1 if newest is None else newest.epoch + 1)
    # First here: a process that is killed in between knows its own epoch again, either of the two.
    own = [newest] if newest is not None and is_own(folder, newest) else []
    heads = json.dumps([asdict(each) for each in (*own, head)])
    write_file(folder / OWN_HEADS, heads.encode())
    reach("head.take.before")
    if not create_object(bucket.url, head.name, head.as_bytes()):
        found = newest_head(bucket)
        if found is None or found.token != head.token:
            raise _adopted(bucket, found, "this machine came second")
    elif create_object(bucket.url, head.name, b"{}"):
        bucket.put(head.name, head.as_bytes())
        raise BucketError(
            f"{bucket.url} ignores conditions of writes (If-None-Match: *), so two machines could "
            "work on one run: use a store that keeps to them"
        )
    reach("head.take.after")
    headship = Headship(bucket=bucket, head=head)
    headship.give_sign()
    return headship


def newest_head(bucket: Bucket) -> Head | None:
    """Return who has the newest epoch of a run; None if nobody ever took one."""
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
    """Return how old a head's beat is, in seconds; None if it has ended cleanly, or gave none."""
    age = object_age_s(bucket.url, head.beat)
    if age is None:
        return None
    try:
        beat: dict[str, Any] = json.loads(bucket.read(head.beat))
    except DamagedError:
        return None
    except json.JSONDecodeError:
        # A store is asked for an object's size and then for its bytes; a beat of another length
        # that comes between the two is cut. Whoever writes it at this moment lives.
        return age
    return None if beat["ended"] else age


def _adopted(bucket: Bucket, head: Head | None, what: str) -> AdoptedError:
    run = bucket.url.rpartition("/")[2]
    who = "another machine" if head is None else head.told()
    return AdoptedError(f"run {run} was adopted by {who}; {what}")
