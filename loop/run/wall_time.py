"""The working time of stages; concurrent stages share each second."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class WallTime:
    """Measures how much of the time of several stages was counted for more than one of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._running = 0
        self._since = 0.0
        self._twice = 0.0
        self._busy = 0.0

    def elapsed(self) -> float:
        """Return the seconds in which stages were at work, those until now included."""
        with self._mutex:
            return self._busy + (self._clock() - self._since if self._running else 0.0)

    def change(self, by: int) -> float:
        """Note that `by` more stages are at work; return the time."""
        with self._mutex:
            now = self._clock()
            self._twice += max(0, self._running - 1) * (now - self._since)
            self._busy += now - self._since if self._running else 0.0
            self._running += by
            self._since = now
        return now

    def taken_twice(self) -> float:
        """Return the seconds counted for several stages since the last call."""
        with self._mutex:
            twice, self._twice = self._twice, 0.0
        return twice


class StageTime:
    """The time of one stage, without its waiting for the rows of another."""

    def __init__(self, wall: WallTime) -> None:
        self._wall = wall
        self._began = 0.0
        self._rested = 0.0

    def begin(self) -> None:
        """Note that the stage begins."""
        self._began = self._wall.change(1)

    @contextmanager
    def rest(self) -> Generator[None]:
        """Exclude the time in the block, in which the stage waits for another."""
        left = self._wall.change(-1)
        try:
            yield
        finally:
            self._rested += self._wall.change(1) - left

    def end(self) -> tuple[float, float]:
        """Return its seconds, and the seconds also counted for others since a stage last ended."""
        ended = self._wall.change(-1)
        return ended - self._began - self._rested, self._wall.taken_twice()
