"""The time that stages take, where those side by side share each second."""

import threading
import time
from collections.abc import Callable


class WallTime:
    """Tells how much of the time of several stages was counted for more than one of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._running = 0
        self._since = 0.0
        self._twice = 0.0

    def begin(self) -> float:
        """Note that a stage begins; return the time, by which it ends later."""
        with self._mutex:
            return self._change(1)

    def end(self, began: float) -> tuple[float, float]:
        """Return a stage's seconds, and those counted for others, too, since a stage last ended."""
        with self._mutex:
            now = self._change(-1)
            twice, self._twice = self._twice, 0.0
        return now - began, twice

    def _change(self, by: int) -> float:
        now = self._clock()
        self._twice += max(0, self._running - 1) * (now - self._since)
        self._running += by
        self._since = now
        return now
