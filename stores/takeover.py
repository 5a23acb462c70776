"""Taking over a run of a bucket on another machine, from the newest whole snapshot of its journal.

All checks come before the next epoch is taken. From then on the previous head can neither take a
snapshot nor remove an object without noticing, so the snapshots listed afterwards are the last
ones. The journal's file is written last: without it the run does not exist here, and taking over
starts over.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from .address import bucket_of, run_argument
from .bucket import Bucket
from .durable import TEMPORARY, make_folder, publish_file, quarantine
from .failpoints import reach
from .inspection import Damage, repair
from .journal import Journal
from .journal_file import COMMITS, JOURNAL
from .lake import OWN, QUARANTINE, RunWriter, run_folder, run_names
from .lock import acquire, release
from .objects import objects_of
from .run_lease import (
    ALIVE_S,
    Head,
    Snapshot,
    fetch,
    is_own,
    newest_head,
    run_bucket,
    sign_of_life_s,
    snapshots,
    take_epoch,
)

TAKEN_OVER = "taken over"
"""The kind of the event that records a takeover."""


class TakeoverError(ValueError):
    """A run that cannot be taken over here or now."""

    code = "LPF-218"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOverRun:
    """A run that this machine has taken over, and the snapshot it was taken over from.

    `before` was its head; `passed_over` are newer snapshots that were damaged; `missing` are
    files that the journal refers to and the bucket lacks: their units are pending again.
    """

    folder: Path
    before: Head
    snapshot: Snapshot
    passed_over: int
    missing: Sequence[Damage]


def take_over(lake: Path, name: str | None, *, force: bool = False) -> TakenOverRun:
    """Take over a run of a bucket on this machine; the default is the only run that is not here.

    `force`: although its head gave a sign of life a short while ago.

    Raises:
        TakeoverError: if no run can be taken over, the run is here already, or its head may live.
        TakenOverError: if another machine took it over at the same moment.
        BucketError: if the bucket cannot be used.
    """
    url = bucket_of(lake)
    if url is None:
        raise TakeoverError(f"{lake} is a folder: `takeover` is for runs in a bucket (s3://...)")
    folder = run_folder(lake, name or _only_one(lake, url))
    bucket = run_bucket(url, folder)
    before = _head_to_take(folder, bucket, force=force)
    lock = acquire(make_folder(folder))
    try:
        for left in folder.glob(f"{TEMPORARY}*"):
            left.unlink()
        draft = folder / f"{TEMPORARY}{JOURNAL}"
        there = snapshots(bucket)
        snapshot, passed_over = _newest_whole(bucket, there, draft)
        # The new journal must not use the log and count of an earlier one.
        for log in folder.glob(f"{JOURNAL}-*"):
            quarantine(log, folder / QUARANTINE)
        (folder / COMMITS).unlink(missing_ok=True)
        take_epoch(folder, bucket, before)
        reach("takeover.taken")
        if there != (now := snapshots(bucket)):
            snapshot, passed_over = _newest_whole(bucket, now, draft)
        reach("takeover.fetched")
        publish_file(draft, folder / JOURNAL)
    finally:
        release(lock)
    with closing(RunWriter(Journal(folder))) as store:
        missing = repair(store.journal, deep=False)
        taken = {"epoch": snapshot.epoch, "number": snapshot.number}
        record = {"from": before.describe(), **taken, "missing": len(missing)}
        store.journal.record(TAKEN_OVER, record)
    objects = objects_of(folder)
    for path in objects.sizes(folder / OWN):
        objects.local_file(path)
    return TakenOverRun(
        folder=folder,
        before=before,
        snapshot=snapshot,
        passed_over=passed_over,
        missing=missing,
    )


def _only_one(lake: Path, url: str) -> str:
    """Return the name of the one run of a bucket that is not on this machine."""
    here = run_names(lake)
    found = [name for name in Bucket(url).folders("runs") if name not in here]
    if len(found) != 1:
        what = f"{len(found)} runs that are not here" if found else "no run that is not here"
        names = f": say which, {', '.join(found)}" if found else ""
        raise TakeoverError(f"{url} holds {what}{names}")
    return found[0]


def _head_to_take(folder: Path, bucket: Bucket, *, force: bool) -> Head:
    """Return the head of a run that may be taken over now; nothing is written before."""
    name, newest = folder.name, newest_head(bucket)
    if (folder / JOURNAL).exists():
        if newest is None or is_own(folder, newest):
            own = run_argument(folder)
            raise TakeoverError(f"run {name} is on this machine: `lpfloop resume {own}` continues")
        raise TakeoverError(
            f"run {name} is on this machine as it was before {newest.describe()} took it over: "
            f"move {folder} away first"
        )
    if newest is None:
        raise TakeoverError(f"{bucket.url} holds no run that could be taken over")
    if not snapshots(bucket):
        raise TakeoverError(
            f"{bucket.url} holds no snapshot of the journal, so its committed objects are unknown: "
            f"{newest.describe()} took none"
        )
    age = None if is_own(folder, newest) else sign_of_life_s(bucket, newest)
    if age is not None and age < ALIVE_S and not force:
        raise TakeoverError(
            f"run {name} may be worked on: its head, {newest.describe()}, gave a sign of life "
            f"{age:.0f} s ago; end it there, wait until {ALIVE_S / 60:.0f} minutes are over, or "
            "take the run from it by --force"
        )
    return newest


def _newest_whole(bucket: Bucket, there: Sequence[Snapshot], path: Path) -> tuple[Snapshot, int]:
    """Write the journal of the newest undamaged snapshot to `path`; return how many are newer.

    Raises:
        TakeoverError: if all snapshots are damaged.
    """
    for passed_over, snapshot in enumerate(there):
        if fetch(bucket, snapshot, path):
            return snapshot, passed_over
    raise TakeoverError(f"{bucket.url} holds {len(there)} snapshots of the journal, all damaged")
