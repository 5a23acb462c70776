"""A clock for scripted models that stands still while any thread of a run has something to do.

A script sleeps on it. Time goes on when the main thread and all payments either sleep or wait, and
everything handed to the store is durable; so it depends neither on the machine nor on its load.
"""

import threading
from collections.abc import Sequence
from typing import Any

import scripts

from lpfloop.loop.run.run import Run
from lpfloop.policies.engines.engine import Request, Sampling

LOOK_S = 0.001
REQUEST_S = 1.0
"""What a scripted model takes for an answer, whichever it is."""


class StageClock:
    """Virtual seconds; `now` begins at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._mutex = threading.Lock()
        self._wakes: dict[threading.Thread, float] = {}
        self._idle: dict[threading.Thread, int] = {}
        # Those that a run before has left behind.
        self._others = {t for t in threading.enumerate() if t.name.startswith("stage ")}
        self._changes = self._handed = self._settled = 0

    def sleep(self, seconds: float) -> None:
        """Sleep in virtual time."""
        own, naps = threading.current_thread(), threading.Event()
        with self._mutex:
            self._wakes[own] = wake = self.now + seconds
        while self.now < wake:
            with self._mutex:
                if self._stands_still() and wake == min(self._wakes.values()):
                    self.now = wake
            naps.wait(LOOK_S)
        with self._mutex:
            del self._wakes[own]

    def watch(self, run: Run) -> None:
        """Know what the threads of a run wait for, and what its store has still to write."""
        run.flow.changed = _WatchedCondition(self)
        store, settled = run.store, run.store.on_settled
        commit = store.commit

        def handed(*args: Any, **options: Any) -> None:
            with self._mutex:
                self._handed += 1
            commit(*args, **options)

        def told(units: Sequence[str]) -> None:
            settled(units)
            with self._mutex:
                self._settled += len(units)

        store.commit, store.on_settled = handed, told

    def waits(self, seen: int) -> None:
        """Note that a thread waits, and how much it had seen when it last looked around."""
        with self._mutex:
            self._idle[threading.current_thread()] = seen

    def goes_on(self) -> int:
        """Note that a thread waits no more; return how much there is to see for it."""
        with self._mutex:
            self._idle.pop(threading.current_thread(), None)
            return self._changes

    def changed(self) -> None:
        """Note that those who wait have something to see."""
        with self._mutex:
            self._changes += 1

    def _stands_still(self) -> bool:
        working = {t for t in threading.enumerate() if t.name.startswith(("MainThread", "stage "))}
        idle = {thread for thread, seen in self._idle.items() if seen == self._changes}
        return working - self._others <= idle | self._wakes.keys() and self._handed == self._settled


class _WatchedCondition(threading.Condition):
    def __init__(self, clock: StageClock) -> None:
        super().__init__()
        self._clock = clock
        self._seen = threading.local()

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.waits(getattr(self._seen, "changes", -1))
        try:
            return super().wait(timeout)
        finally:
            self._seen.changes = self._clock.goes_on()

    def notify_all(self) -> None:
        self._clock.changed()
        super().notify_all()


_clocks = [StageClock()]
"""The last one is the clock of the scripts below; a test begins with a new one."""


def begin() -> StageClock:
    """Begin at 0."""
    _clocks.append(StageClock())
    return _clocks[-1]


def policy(request: Request, sampling: Sampling) -> str:
    """Answer by the seed, after a while."""
    _clocks[-1].sleep(REQUEST_S)
    return scripts.policy(request, sampling)


def critic(request: Request, sampling: Sampling) -> str:
    """Rate what is asked for, after a while."""
    _clocks[-1].sleep(REQUEST_S)
    return scripts.clear_critic(request, sampling)
