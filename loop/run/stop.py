"""Stopping and pausing: who asks (a signal, or the control socket), and how long a stop may take.

The first request admits no further unit and lets what is in flight finish, for `drain_s` seconds;
then `Stopped` is raised wherever the main thread is. A second signal ends the process at once.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

POLL_S = 0.05
AGAIN_S = 0.25
"""A deadline that could not fire (cleanup ran, or a finalizer swallowed it) comes again."""
ROUNDS = 3
"""Processes that start while others are killed are killed in the next round."""


class Stopped(Exception):  # noqa: N818 -- a clean end, not an error
    """The run was asked to stop; everything finished is committed and the run can be resumed."""


class StopSignal:
    """Whether somebody asked the run to stop or to pause; any thread may ask.

    `drain_s`: seconds that what is in flight may take after a stop was asked for.
    `lift_pause`: whether a pause that the journal remembers ends when the run begins.
    """

    def __init__(self, *, drain_s: float = 30.0, lift_pause: bool = False) -> None:
        self.drain_s = drain_s
        self.lift_pause = lift_pause
        self._requested = False
        self._asked_at = 0.0
        self._paused = False
        self._listening = False
        self._shelters = 0

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for."""
        return self._requested

    @property
    def paused(self) -> bool:
        """Whether no new unit may begin for now."""
        return self._paused

    @property
    def halts(self) -> bool:
        """Whether what can be interrupted, and go on later, is to end for now."""
        return self._requested or self._paused

    @property
    def left_s(self) -> float:
        """How many seconds what is in flight may take from now on, if no unit may begin."""
        gone = time.monotonic() - self._asked_at if self._requested else 0.0
        return max(0.0, self.drain_s - gone)

    def request(self) -> None:
        """Ask for a clean stop: no new unit begins, and the time to drain runs."""
        if not self._requested:
            self._asked_at = time.monotonic()
        self._requested = True
        if self._listening:
            signal.setitimer(signal.ITIMER_REAL, max(self.drain_s, POLL_S), AGAIN_S)

    def pause(self) -> None:
        """Let no new unit begin; what is in flight goes on and is committed."""
        self._paused = True

    def unpause(self) -> None:
        """Let units begin again."""
        self._paused = False

    def check(self) -> None:
        """Raise `Stopped` if a stop was asked for; a pause does not matter here."""
        if self._requested:
            raise Stopped

    def admit(self) -> None:
        """Let a unit begin: wait while paused, and raise `Stopped` if a stop was asked for."""
        # Polled: a lock would deadlock if the signal handler took it in the waiting thread.
        while self._paused and not self._requested:
            time.sleep(POLL_S)
        self.check()

    def at_once(self, number: int) -> None:
        """End this process and its children now, as a shell reports a death by signal `number`."""
        for _ in range(ROUNDS):
            kill_all(psutil.Process().children(recursive=True))
        os._exit(128 + number)

    @contextmanager
    def on_signals(self) -> Generator[None]:
        """Listen to SIGINT, SIGTERM and SIGHUP while the run lasts; only in the main thread."""
        before = {number: signal.signal(number, self._handle) for number in _listened()}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._expire)
        self._listening = True
        try:
            if self._requested:
                self.request()
            try:
                yield
            finally:
                self._listening = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def sheltered(self) -> Generator[None]:
        """Keep the deadline from firing in the block, which ends soon by itself."""
        self._shelters += 1
        try:
            yield
        finally:
            self._shelters -= 1

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._requested:
            self.at_once(number)
        self.request()

    def _expire(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._listening and not self._shelters and not _leaving():
            raise Stopped


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes that still live; another that bears the number of one is let be."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _listened() -> list[signal.Signals]:
    """Return the signals that ask for a stop; a hang-up that `nohup` ignores stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals are handled in the main thread only")
    hang_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hang_up else [])]


def _leaving() -> bool:
    """Whether `Stopped` is on its way out already, and the code that runs is its cleanup."""
    error = sys.exception()
    while error is not None and not isinstance(error, Stopped):
        error = error.__context__
    return error is not None
