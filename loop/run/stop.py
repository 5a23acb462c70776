"""Stopping and pausing: by a signal or the control socket, and how long a stop may take.

After the first request no further unit begins, and work in flight may finish for
`shutdown_timeout_s` seconds; then `Stopped` is raised in the main thread, at any point. A second
signal ends the process at once.
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
"""Seconds until a deadline that could not fire (in cleanup or a finalizer) is retried."""
ROUNDS = 3
"""Rounds of killing: processes that start during one round are killed in the next."""


class Stopped(Exception):  # noqa: N818 -- a clean end, not an error
    """A requested stop; everything finished is committed and the run can be resumed."""

    code = "LPF-400"


class StopSignal:
    """Requests to stop or pause the run; any thread may make them.

    `shutdown_timeout_s`: seconds that work in flight may take after a request to stop.
    `lift_pause`: whether a pause recorded in the journal ends when the run begins.
    """

    def __init__(self, *, shutdown_timeout_s: float = 30.0, lift_pause: bool = False) -> None:
        self.shutdown_timeout_s = shutdown_timeout_s
        self.lift_pause = lift_pause
        self._requested = False
        self._requested_at = 0.0
        self._paused = False
        self._listening = False
        self._shelters = 0

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._requested

    @property
    def paused(self) -> bool:
        """Whether no new unit may begin while the pause lasts."""
        return self._paused

    @property
    def halts(self) -> bool:
        """Whether interruptible work is to stop now; it can be resumed later."""
        return self._requested or self._paused

    @property
    def left_s(self) -> float:
        """The seconds that work in flight may still take, if no unit may begin."""
        gone = time.monotonic() - self._requested_at if self._requested else 0.0
        return max(0.0, self.shutdown_timeout_s - gone)

    def request(self) -> None:
        """Request a clean stop: no new unit begins, and the time to drain runs."""
        if not self._requested:
            self._requested_at = time.monotonic()
        self._requested = True
        if self._listening:
            signal.setitimer(signal.ITIMER_REAL, max(self.shutdown_timeout_s, POLL_S), AGAIN_S)

    def pause(self) -> None:
        """Keep new units from beginning; work in flight continues and is committed."""
        self._paused = True

    def unpause(self) -> None:
        """End the pause, so that units begin again."""
        self._paused = False

    def check(self) -> None:
        """Raise `Stopped` after a request to stop; a pause does not matter here."""
        if self._requested:
            raise Stopped

    def at_once(self, number: int) -> None:
        """End this process and its children now, as a shell reports a death by signal `number`."""
        for _ in range(ROUNDS):
            kill_all(psutil.Process().children(recursive=True))
        os._exit(128 + number)

    @contextmanager
    def on_signals(self) -> Generator[None]:
        """Listen to SIGINT, SIGTERM and SIGHUP while the run lasts; only in the main thread."""
        before = {number: signal.signal(number, self._handle) for number in _stop_signals()}
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
    def hold_deadline(self) -> Generator[None]:
        """Keep the deadline from firing in the block, which must be short."""
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
    """Kill the processes that still live, but no other process that got the number of one."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _stop_signals() -> list[signal.Signals]:
    """Return the signals that request a stop; a hang-up that `nohup` ignores stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals are handled in the main thread only")
    hang_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hang_up else [])]


def _leaving() -> bool:
    """Whether `Stopped` was raised already, and its cleanup is running."""
    error = sys.exception()
    while error is not None and not isinstance(error, Stopped):
        error = error.__context__
    return error is not None


START = "start"
"""A process begins to work on the run: pid, host, started, since_boot."""
STAGE = "stage"
"""The process begins a stage that owes something: iteration, stage, done, at."""
END = "end"
"""The process ends without being killed: how, as a sentence."""


WENT_ON = "went on after alarms"
"""The kind of the event that records the iteration with which it was decided to go on."""


class NothingToTrainOn(Exception):  # noqa: N818 -- an outcome, not an error
    """An iteration that ends before training; the message has the reason."""

    code = "LPF-402"


class Regressed(Exception):  # noqa: N818 -- an outcome, not an error
    """A run that stops because its last policy is worse than the best; the message has the gap."""

    code = "LPF-403"


class AlarmStopError(Exception):
    """An alarm that stops was raised, and the run is to stop at it."""

    code = "LPF-404"
