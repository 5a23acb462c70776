# pyright: basic
"""Committing in the background: units that finish together become durable together.

One thread seals parts and writes the journal, so that the loop does not wait for the disk: while
one group is made durable, the next one gathers. A full disk pauses it until there is room.
"""

import errno
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .durable import write_parts
from .failpoints import reach
from .journal import Done, Journal
from .schemas import TABLES, Row, to_table
from .sealed import PartFile

GROUP = 64
QUEUED = 2 * GROUP
RETRY_S = 1.0
TURN_S = 0.1
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# SQLite says FULL for ENOSPC alone; a quota's end, or a file's, is to it a write that failed.
NO_ROOM_SQLITE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})

logger = logging.getLogger("lpfloop.store")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A unit's rows, not yet durable."""

    unit: str
    tables: Mapping[type[Row], Sequence[Row]]
    telemetry: Mapping[str, float]


class Committer:
    """A queue of finished units, and the thread that makes them durable."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queue: queue.Queue[Finished | None] = queue.Queue(QUEUED)
        self._settled: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def put(self, finished: Finished) -> None:
        """Hand over a finished unit; waits while the disk is far behind.

        Raises:
            Exception: what kept earlier units from becoming durable.
        """
        self._raise_failure()
        while not self._taken(finished):
            pass

    def _taken(self, finished: Finished) -> bool:
        """Put a unit into the queue; wait one turn for a place in it, so that signals are seen."""
        try:
            self._queue.put(finished, timeout=TURN_S)
        except queue.Full:
            return False
        return True

    def settled(self) -> list[str]:
        """Return the units that became durable since the last call."""
        found = list[str]()
        while not self._settled.empty():
            found.append(self._settled.get())
        return found

    def flush(self) -> None:
        """Wait until everything handed over is durable.

        Raises:
            Exception: what kept units from becoming durable.
        """
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                # By turns: a signal that comes just before a wait is noticed only after it.
                self._queue.all_tasks_done.wait(TURN_S)
        self._raise_failure()

    def close(self) -> None:
        """Make durable what was handed over, unless the disk is full, and end the thread."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        ended = False
        while not ended:
            group = self._next_group()
            ended = None in group
            units = [finished for finished in group if finished is not None]
            if units and self._failure is None:
                self._settle(units)
            for _ in group:
                self._queue.task_done()

    def _next_group(self) -> list[Finished | None]:
        group = [self._queue.get()]
        while len(group) < GROUP:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return group

    def _settle(self, units: Sequence[Finished]) -> None:
        """Make a group durable; what prevents it is raised where the next unit is handed over."""
        try:
            when_there_is_room(lambda: self._commit(units), self._closing)
        except Exception as failure:  # noqa: BLE001 -- carried to the thread that waits for it
            self._failure = failure
            return
        for finished in units:
            self._settled.put(finished.unit)

    def _commit(self, units: Sequence[Finished]) -> None:
        reach("lake.commit.before")
        named = [
            (f.unit, TABLES[kind], kind, rows) for f in units for kind, rows in f.tables.items()
        ]
        folder = self._journal.folder
        sealed = write_parts(
            [(part_folder(folder, table), to_table(kind, rows)) for _, table, kind, rows in named]
        )
        parts: dict[str, dict[str, PartFile]] = {f.unit: {} for f in units}
        for (unit, table, _, _), part in zip(named, sealed, strict=True):
            parts[unit][table] = part
        self._journal.commit(
            [Done(unit=f.unit, parts=parts[f.unit], telemetry=f.telemetry) for f in units]
        )
        reach("lake.commit.after")


def part_folder(folder: Path, table: str) -> Path:
    """Return the folder of a table's parts."""
    return folder / "parts" / table


def is_no_room(error: Exception) -> bool:
    """Whether a write failed for lack of room, so that it will succeed when there is some."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode in NO_ROOM_SQLITE
    return isinstance(error, OSError) and error.errno in NO_ROOM


def when_there_is_room(action: Callable[[], T], giving_up: threading.Event) -> T:
    """Do what can safely be done again; on a full disk, wait for room and do it again.

    Raises:
        OSError, sqlite3.OperationalError: if the disk is full and `giving_up` is set.
    """
    began: float | None = None
    while True:
        try:
            result = action()
        except (OSError, sqlite3.OperationalError) as error:
            if not is_no_room(error) or giving_up.is_set():
                raise
            if began is None:
                began = time.monotonic()
                logger.warning("the disk is full (%s): paused until there is room", error)
            giving_up.wait(RETRY_S)
        else:
            if began is not None:
                logger.warning("there is room again after %.0f s", time.monotonic() - began)
            return result


def if_there_is_room(action: Callable[[], object]) -> None:
    """Do what may be left undone on a full disk: a note on the way out."""
    try:
        action()
    except (OSError, sqlite3.OperationalError) as error:
        if not is_no_room(error):
            raise
        logger.warning("not noted, as the disk is full: %s", error)
