"""A thread that lets a run's bucket know of its journal, and of the head that works on it.

It takes a snapshot when a stage is over and every few minutes, and gives a sign of life each
minute; no work waits for it. A bucket that is away is tried again and again meanwhile. If another
machine has adopted the run, this head ends.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from .heads import BEAT_S
from .journal import Journal
from .lock import FencedError

RETRY_S = 10.0
MINUTES = 5.0
REST = 9
"""At most one part in ten of the time goes into snapshots, however short the stages are."""
NICENESS = 10

logger = logging.getLogger("lpfloop.store")


class SnapshotKeeper:
    """The thread of one held journal; none for a run in a folder.

    `minutes` is the longest time between two snapshots of a journal that changes. `on_adopted` is
    told, in the thread, that another machine has taken the run over.
    """

    def __init__(self, journal: Journal) -> None:
        self.minutes = MINUTES
        self.on_adopted: Callable[[], None] = lambda: None
        self._journal = journal
        self._wanted = threading.Event()
        self._ending = False
        self._away = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)
        if journal.headship is not None:
            self._thread.start()

    def ask(self) -> None:
        """Request a snapshot.

        Raises:
            AdoptedError: if another machine has taken the run over.
            Exception: the error that ended the thread.
        """
        if self._failure is not None:
            raise self._failure
        self._wanted.set()

    def check_head(self) -> None:
        """Look whether this process is the run's head still, unless the bucket is away.

        Raises:
            AdoptedError: if another machine has taken the run over.
        """
        if self._failure is not None:
            raise self._failure
        if not self._away:
            self._journal.check_head()

    def close(self) -> None:
        """End the thread after what it is about."""
        self._ending = True
        self._wanted.set()
        if self._journal.headship is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            self._keep()
        except FencedError as error:
            self._failure = error
            self.on_adopted()
        except Exception as error:  # noqa: BLE001 -- carried to the thread that asks next
            self._failure = error

    def _keep(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        due = sign_due = earliest = time.monotonic()
        while True:
            asked = self._wanted.wait(max(0.0, min(due, sign_due) - time.monotonic()))
            if self._ending:
                return
            self._wanted.clear()
            now = time.monotonic()
            if asked:
                due = min(due, max(now, earliest))
            if now >= due:
                kept = self._done(self._journal.take_snapshot)
                ended = time.monotonic()
                earliest = ended + REST * (ended - now)
                due = max(earliest, now + (60 * self.minutes if kept else RETRY_S))
            if now >= sign_due:
                sign_due = now + (BEAT_S if self._done(self._give_sign) else RETRY_S)

    def _give_sign(self) -> None:
        self._journal.check_head()
        if self._journal.headship is not None:
            self._journal.headship.give_sign()

    def _done(self, action: Callable[[], None]) -> bool:
        """Do something; if the bucket is away or the disk full, say so once, and return False."""
        try:
            action()
        except (OSError, sqlite3.OperationalError) as error:
            if not self._away:
                logger.warning("no snapshot of the journal for now, tried again: %s", error)
            self._away = True
            return False
        if self._away:
            logger.warning("the bucket has a snapshot of the journal again")
        self._away = False
        return True
