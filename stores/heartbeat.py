"""A head's sign of life in its run's bucket, given each minute by a thread that does nothing else.

At the same time it checks that the head's epoch is still the newest. No work waits for it, and it
waits for none: a head that sends a large snapshot, or collects garbage for an hour, stays alive.
"""

import logging
import threading
from collections.abc import Callable

from .lock import FencedError
from .run_lease import BEAT_S, RunLease

RETRY_S = 10.0

logger = logging.getLogger("lpfloop.store")


class SignsOfLife:
    """The thread of one head, from now until `close`.

    `on_adopted` is called, in the thread, when another machine has taken the run over; the signs
    end then. While the bucket is away, the thread tries again and again.
    """

    def __init__(
        self, headship: RunLease, on_adopted: Callable[[FencedError], None] = lambda _: None
    ) -> None:
        self._headship = headship
        self._on_adopted = on_adopted
        self._away = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="signs of life", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; no sign comes after this."""
        self._ending.set()
        self._thread.join()

    def _work(self) -> None:
        wait_s = BEAT_S
        try:
            while not self._ending.wait(wait_s):
                wait_s = BEAT_S if self._given() else RETRY_S
        except FencedError as error:
            self._on_adopted(error)

    def _given(self) -> bool:
        """Give a sign; if the bucket is away, log it once and return False."""
        try:
            self._headship.check()
            self._headship.give_sign()
        except OSError as error:
            if not self._away:
                logger.warning("no sign of life in the bucket for now, tried again: %s", error)
            self._away = True
            return False
        self._away = False
        return True
