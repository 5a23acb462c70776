# pyright: basic
"""Committing in the background: units that finish together are made durable together.

One thread writes the journal, so that the loop does not wait for the disk: while one group of
units, and of replies to parts of units, is made durable, the next one gathers. A full disk pauses
it until there is room. The same thread moves the rows of finished stages, and of stages that have
many, from the journal into files.
"""

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import apsw

from .address import OutOfReachError
from .failpoints import reach
from .journal import Done, Journal, KeptSlice
from .journal_file import extended_code
from .journal_reader import JournalError, StageId
from .keys import Json
from .schemas import TABLES, RowsByType, to_table
from .stage_files import ROWS as FILE_ROWS
from .stage_files import SIZE as FILE_SIZE
from .stage_files import seal_stage
from .verified import EncodedRows, encode_tables

GROUP = 64
QUEUED = 2 * GROUP
ROWS = 1024
"""A unit with this many rows takes one more place, so that the queue bounds units and rows."""
LETTERS = 1 << 16
"""This many letters of replies take one place, too."""
RETRY_S = 1.0
TURN_S = 0.1
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

logger = logging.getLogger("lpfloop.store")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A unit's rows, not yet durable; `served` holds the reports of endpoints (`Done`)."""

    unit: str
    tables: RowsByType
    telemetry: Mapping[str, float]
    served: Sequence[Mapping[str, Json]] = ()


SEAL = "seal"
"""A request to move finished stages into files."""

Item = Finished | KeptSlice | str


def _weight(item: Item | None) -> int:
    """Return the places that an item takes in the queue."""
    match item:
        case KeptSlice():
            return 1 + len(item.replies) // LETTERS
        case Finished():
            return 1 + sum(len(rows) for rows in item.tables.values()) // ROWS
        case _:
            return 1


def _name(item: Item) -> str:
    """Return a unique name of an item."""
    if isinstance(item, KeptSlice):
        return f"{item.unit} {item.slice_}"
    return item.unit if isinstance(item, Finished) else item


class Committer:
    """A queue of finished units and kept slices, and the thread that makes them durable.

    `on_settled` is called, in that thread, with the items that have become durable.
    """

    def __init__(self, journal: Journal, on_settled: Callable[[Sequence[str]], None]) -> None:
        self._journal = journal
        self._on_settled = on_settled
        self._queue = deque[Item | None]()
        self._queued = 0
        self._pending = set[str]()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        # The rows and bytes that came into the journal since a stage was sealed; also of stages
        # that a killed process has finished.
        self._unsealed: dict[StageId, tuple[int, int]] = dict.fromkeys(
            journal.unsealed_stages(), (0, 0)
        )
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand over a finished unit or a kept slice; waits while the disk is far behind.

        Raises:
            Exception: the error that kept earlier ones from becoming durable.
        """
        self._raise_failure()
        with self._changed:
            while self._queued >= QUEUED:
                # In turns: a signal that arrives just before a wait is handled only after it.
                self._changed.wait(TURN_S)
            # Pending last: a signal in between leaves no thread waiting for unqueued rows.
            self._enqueue(item)
            self._pending.add(_name(item))

    def _enqueue(self, item: Item | None) -> None:
        with self._changed:
            self._queue.append(item)
            self._queued += _weight(item)
            self._changed.notify_all()

    def seal(self) -> None:
        """Wait until the rows of finished stages are in files, if there is room for them.

        Raises:
            Exception: the error that kept units from becoming durable.
        """
        self.put(SEAL)
        self.flush()

    def flush(self) -> None:
        """Wait until everything handed over so far is durable.

        Raises:
            Exception: the error that kept units from becoming durable.
        """
        with self._changed:
            pending = frozenset(self._pending)
            while not pending.isdisjoint(self._pending):
                self._changed.wait(TURN_S)  # In turns, as in `put`.
        self._raise_failure()

    def give_up(self) -> None:
        """Stop waiting for room on the disk."""
        self._closing.set()

    def close(self) -> None:
        """Make all items durable, unless the disk is full, and end the thread."""
        self._closing.set()
        self._enqueue(None)
        self._thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        ended = False
        while not ended:
            group = self._next_group()
            ended = None in group
            items = [item for item in group if item not in (None, SEAL)]
            if items and self._failure is None:
                self._settle(items)
            self._over(items)
            if self._failure is None:
                # Only the journal knows the units that a fork has committed.
                others = self._journal.unsealed_stages() if ended or SEAL in group else []
                self._seal([*self._unsealed, *others])
            self._over([SEAL] if SEAL in group else [])

    def _over(self, items: Sequence[Item]) -> None:
        """End the waits for these items."""
        with self._changed:
            self._pending.difference_update(map(_name, items))
            self._changed.notify_all()

    def _next_group(self) -> list[Item | None]:
        group, weight = list[Item | None](), 0
        with self._changed:
            while not self._queue:
                self._changed.wait()
            while self._queue and weight < GROUP:
                group.append(self._queue.popleft())
                weight += _weight(group[-1])
            self._queued -= weight
            self._changed.notify_all()
        return group

    def _settle(self, items: Sequence[Item]) -> None:
        """Make a group durable; an error is raised when the next item is handed over.

        Slices are kept before units are committed, because a commit deletes its unit's slices.
        """
        slices = [item for item in items if isinstance(item, KeptSlice)]
        units = [item for item in items if isinstance(item, Finished)]
        try:
            if slices:
                when_there_is_room(lambda: self._journal.keep(slices), self._closing)
            if units:
                when_there_is_room(lambda: self._commit(units), self._closing)
                self._on_settled([finished.unit for finished in units])
        except Exception as failure:  # noqa: BLE001 -- carried to the thread that waits for it
            self._failure = failure

    def _commit(self, units: Sequence[Finished]) -> None:
        results = encode_units(units)
        reach("lake.commit.before")
        for stage, (rows, size) in self._journal.commit(results).items():
            before = self._unsealed.get(stage, (0, 0))
            self._unsealed[stage] = (before[0] + rows, before[1] + size)
        reach("lake.commit.after")

    def _seal(self, stages: Sequence[StageId]) -> None:
        """Move the rows of those stages that are finished, or have many, into files.

        If the disk is full, or the bucket is away, they stay in the journal until the next commit.
        """
        try:
            for stage in dict.fromkeys(stages):
                finished = self._journal.is_finished(*stage)
                rows, size = self._unsealed.get(stage, (0, 0))
                if finished or rows > FILE_ROWS or size > FILE_SIZE:
                    seal_stage(self._journal, *stage, finished=finished)
                    self._unsealed.pop(stage, None)
        except (OSError, apsw.Error, JournalError) as error:
            logger.warning("rows stay in the journal for now: %s", error)
        except Exception as failure:  # noqa: BLE001 -- carried to the thread that waits for it
            self._failure = failure


def encode_units(units: Sequence[Finished]) -> list[Done]:
    """Encode the rows of finished units."""
    named = [(f.unit, kind, rows) for f in units for kind, rows in f.tables.items()]
    rows = encode_tables(to_table(kind, rows) for _, kind, rows in named)
    parts: dict[str, dict[str, EncodedRows]] = {f.unit: {} for f in units}
    for (unit, kind, _), part in zip(named, rows, strict=True):
        parts[unit][TABLES[kind]] = part
    return [
        Done(unit=f.unit, parts=parts[f.unit], telemetry=f.telemetry, served=f.served)
        for f in units
    ]


def is_no_room(error: Exception) -> bool:
    """Whether a write failed for lack of room, so that it can succeed later.

    SQLite reports FULL only for ENOSPC; past a quota or a file size limit it reports an I/O error.
    """
    if isinstance(error, apsw.IOError):
        return extended_code(error) == apsw.SQLITE_IOERR_WRITE
    if isinstance(error, apsw.FullError):
        return True
    return isinstance(error, OSError) and error.errno in NO_ROOM


def when_there_is_room(action: Callable[[], T], giving_up: threading.Event) -> T:
    """Run a repeatable action; on a full disk, wait for room and run it again.

    It waits in the same way for a bucket that is out of reach.

    Raises:
        OSError, apsw.Error: if the disk is full and `giving_up` is set.
    """
    began: float | None = None
    while True:
        try:
            result = action()
        except (OSError, apsw.Error) as error:
            away = isinstance(error, OutOfReachError)
            if not (away or is_no_room(error)) or giving_up.is_set():
                raise
            if began is None:
                began = time.monotonic()
                why = "the bucket is away" if away else "the disk is full"
                what = "it answers" if away else "there is room"
                logger.warning("%s (%s): paused until %s", why, error, what)
            giving_up.wait(RETRY_S)
        else:
            if began is not None:
                logger.warning("there is room again after %.0f s", time.monotonic() - began)
            return result


def if_there_is_room(action: Callable[[], object]) -> None:
    """Run an action that may be skipped on a full disk, such as a last note at exit."""
    try:
        action()
    except (OSError, apsw.Error) as error:
        if not is_no_room(error):
            raise
        logger.warning("not noted, as the disk is full: %s", error)
