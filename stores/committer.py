# pyright: basic
"""Committing in the background: units that finish together are made durable together.

One thread writes the journal, so that the loop does not wait for the disk: while one group of
units, and of replies to parts of units, is made durable, the next one gathers, and is encoded by
other threads. A full disk pauses it until there is room. The same thread moves the rows of finished
stages, and of stages that have many, from the journal into files.
"""

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import apsw

from .bucket import OutOfReachError
from .failpoints import reach
from .journal import Done, Journal, KeptSlice
from .journal_file import extended_code
from .journal_reader import JournalError, StageId
from .keys import Json
from .schemas import TABLES, RowsByType, to_table
from .sealing import encode
from .stage_files import ROWS as FILE_ROWS
from .stage_files import SIZE as FILE_SIZE
from .stage_files import seal_stage

GROUP = 64
QUEUED = 2 * GROUP
ENCODERS = 2
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
"""The name of a request to move finished stages into files."""
END = "end"
"""The name of the last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queued:
    """What waits to become durable; `places` is what it takes of the queue.

    A unit is being encoded meanwhile. Without a unit and a slice it is a request, by its name.
    """

    name: str
    places: int = 1
    unit: Future[Done] | None = None
    slice_: KeptSlice | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be made durable now."""
        return self.unit is None or self.unit.done()


class Committer:
    """A queue of finished units and kept slices, and the thread that makes them durable.

    `on_settled` is called, in that thread, with the items that have become durable.
    """

    def __init__(self, journal: Journal, on_settled: Callable[[Sequence[str]], None]) -> None:
        self._journal = journal
        self._on_settled = on_settled
        self._queue = deque[_Queued]()
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
        self._encoders = ThreadPoolExecutor(ENCODERS, thread_name_prefix="encoder")
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def put(self, item: Finished | KeptSlice) -> None:
        """Hand over a finished unit or a kept slice; waits while the disk is far behind.

        Raises:
            Exception: the error that kept earlier ones from becoming durable.
        """
        self._raise_failure()
        with self._changed:
            while self._queued >= QUEUED:
                # In turns: a signal that arrives just before a wait is handled only after it.
                self._changed.wait(TURN_S)
            if isinstance(item, Finished):
                places = 1 + sum(map(len, item.tables.values())) // ROWS
                unit = self._encoders.submit(encode_finished, item)
                unit.add_done_callback(lambda _: self._over(()))
                self._enqueue(_Queued(name=item.unit, places=places, unit=unit))
            else:
                places = 1 + len(item.replies) // LETTERS
                name = f"{item.unit} {item.slice_}"
                self._enqueue(_Queued(name=name, places=places, slice_=item))

    def _enqueue(self, queued: _Queued) -> None:
        with self._changed:
            self._queue.append(queued)
            self._queued += queued.places
            self._changed.notify_all()
            # Last: a signal in between leaves no thread waiting for unqueued rows.
            self._pending.add(queued.name)

    def seal(self) -> None:
        """Wait until the rows of finished stages are in files, if there is room for them.

        Raises:
            Exception: the error that kept units from becoming durable.
        """
        self._raise_failure()
        self._enqueue(_Queued(name=SEAL))
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
        self._enqueue(_Queued(name=END))
        self._thread.join()
        self._encoders.shutdown()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        names = list[str]()
        while END not in names:
            group = self._next_group()
            names = [queued.name for queued in group]
            if self._failure is None:
                self._settle(group)
            self._over([name for name in names if name != SEAL])
            if self._failure is None:
                # Only the journal knows the units that were amended.
                others = self._journal.unsealed_stages() if {SEAL, END} & {*names} else []
                self._seal([*self._unsealed, *others])
            self._over([SEAL] if SEAL in names else [])

    def _over(self, names: Sequence[str]) -> None:
        """End the waits for these items, and let all waits look at their conditions."""
        with self._changed:
            self._pending.difference_update(names)
            self._changed.notify_all()

    def _next_group(self) -> list[_Queued]:
        group, places = list[_Queued](), 0
        with self._changed:
            while not (self._queue and self._queue[0].ready):
                self._changed.wait()
            while self._queue and self._queue[0].ready and places < GROUP:
                group.append(self._queue.popleft())
                places += group[-1].places
            self._queued -= places
            self._changed.notify_all()
        return group

    def _settle(self, group: Sequence[_Queued]) -> None:
        """Make a group durable; an error is raised when the next item is handed over.

        Slices are kept before units are committed, because a commit deletes its unit's slices.
        """
        slices = [queued.slice_ for queued in group if queued.slice_ is not None]
        try:
            if slices:
                when_there_is_room(lambda: self._journal.keep(slices), self._closing)
            units = [queued.unit.result() for queued in group if queued.unit is not None]
            if units:
                when_there_is_room(lambda: self._commit(units), self._closing)
                self._on_settled([done.unit for done in units])
        except Exception as failure:  # noqa: BLE001 -- carried to the thread that waits for it
            self._failure = failure

    def _commit(self, units: Sequence[Done]) -> None:
        reach("lake.commit.before")
        for stage, (rows, size) in self._journal.commit(units).items():
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


def encode_finished(unit: Finished) -> Done:
    """Encode the rows of a finished unit."""
    parts = {TABLES[kind]: encode(to_table(kind, rows)) for kind, rows in unit.tables.items()}
    return Done(unit=unit.unit, parts=parts, telemetry=unit.telemetry, served=unit.served)


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
