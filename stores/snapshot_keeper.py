"""A thread that keeps snapshots of a run's journal in its bucket while the run is worked on.

It takes one when a stage is over and every few minutes; no work waits for it. A bucket that is away
is tried again and again meanwhile. If another machine has adopted the run, this head ends.
"""

import logging
import os
import threading
import time
from contextlib import suppress

import apsw

from .journal import Journal
from .lock import FencedError

RETRY_S = 10.0
MINUTES = 5.0
REST = 9
"""At most one part in ten of the time goes into snapshots, however short the stages are."""
NICENESS = 10

logger = logging.getLogger("lpfloop.store")


class SnapshotKeeper:
    """The thread of one held journal; not used for a run in a folder.

    `minutes` is the longest time between two snapshots of a journal that changes.
    """

    def __init__(self, journal: Journal) -> None:
        self.minutes = MINUTES
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
        self._raise_failure()
        self._wanted.set()

    def check_head(self) -> None:
        """Check that this process is still the run's head, unless the bucket is away.

        Raises:
            AdoptedError: if another machine has taken the run over.
        """
        self._raise_failure()
        if not self._away:
            self._journal.check_head()

    def close(self) -> None:
        """End the thread after its current snapshot."""
        self._ending = True
        self._wanted.set()
        if self._journal.headship is not None:
            self._thread.join()

    def _raise_failure(self) -> None:
        for error in (self._journal.overtaken, self._failure):
            if error is not None:
                raise error

    def _work(self) -> None:
        try:
            self._keep()
        except FencedError:
            self._journal.on_adopted()
        except Exception as error:  # noqa: BLE001 -- carried to the thread that asks next
            self._failure = error

    def _keep(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        due = earliest = time.monotonic()
        while True:
            asked = self._wanted.wait(max(0.0, due - time.monotonic()))
            if self._ending:
                return
            self._wanted.clear()
            now = time.monotonic()
            if asked:
                due = min(due, max(now, earliest))
            if now >= due:
                kept = self._kept()
                ended = time.monotonic()
                earliest = ended + REST * (ended - now)
                due = max(earliest, now + (60 * self.minutes if kept else RETRY_S))

    def _kept(self) -> bool:
        """Take a snapshot; if the bucket is away or the disk full, log it once and return False."""
        try:
            self._journal.take_snapshot()
        except (OSError, apsw.Error) as error:
            if not self._away:
                logger.warning("no snapshot of the journal for now, tried again: %s", error)
            self._away = True
            return False
        if self._away:
            logger.warning("the bucket has a snapshot of the journal again")
        self._away = False
        return True
