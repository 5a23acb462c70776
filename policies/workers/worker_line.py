"""A numbered stream of batches to one worker, which counts as hung when nothing comes back."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import wire
from .work import WorkKind
from .worker import Worker, WorkerDeathError

WAIT_S = 0.5
"""The longest wait for a frame, in seconds, before the stall limit is checked again."""


class WorkerLine:
    """A stream to one worker, and the clock of its stalls.

    `window` is how many requests the worker wants ahead; `stall_limit` says for how many seconds
    it may give nothing, which can change meanwhile.
    """

    def __init__(
        self,
        worker: Worker,
        window: int,
        work: WorkKind[Any, Any],
        stall_limit: Callable[[], float],
    ) -> None:
        self.worker = worker
        self.window = window
        self._work = work
        self._stall_limit = stall_limit
        self._waiting = 0
        self._since = time.monotonic()
        self._number = worker.begin(work.task, stall_limit())

    def send(self, frame: wire.Frame) -> None:
        """Send an item; the clock starts if the worker was idle."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += 1
        self.worker.send({**frame, "stream": self._number}, self._stall_limit())

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next result of this stream, or None when none came in time.

        Raises:
            WorkerDeathError: when the worker has died, or has sent nothing for too long.
        """
        frame = self.worker.receive(timeout_s)
        now = time.monotonic()
        if frame is None:
            stall_s = max(self._stall_limit(), self._work.patience_s)
            if now - self._since > stall_s:
                raise self.worker.hung(f"no result for {stall_s:.0f} s")
            return None
        self._since = now
        if frame.get("stream") != self._number:
            # A result of an earlier, cancelled stream: it shows that the worker lives, no more.
            return None
        self._waiting -= 1
        return frame

    def leave(self) -> None:
        """Cancel the stream; a dead worker is noticed by the next call."""
        with suppress(WorkerDeathError):
            self.worker.send({"op": "cancel", "stream": self._number}, self._stall_limit())
