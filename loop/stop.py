"""Stopping cleanly: the first signal drains what is in flight, the second ends at once."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):  # noqa: N818 -- a clean end, not an error
    """The run was asked to stop; everything finished is committed and the run can be resumed."""


class StopSignal:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Ask for a clean stop: no new unit begins."""
        self.requested = True

    def check(self) -> None:
        """Raise `Stopped` if a stop was asked for."""
        if self.requested:
            raise Stopped

    @contextmanager
    def on_signals(self) -> Generator[None]:
        """Listen to SIGINT and SIGTERM while the run lasts."""
        before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.requested:
            os._exit(128 + number)
        self.request()
