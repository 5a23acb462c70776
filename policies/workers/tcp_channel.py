"""The way to a worker at a machine that joined by TCP: see `machine_queue` for who gets which.

The channel is there before its worker is: what is sent meanwhile waits with it for a machine.
"""

import queue
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from . import wire
from .channel import ChannelEndedError
from .machine_claim import Parting, WorkerClaim
from .machine_queue import MachineQueue

LOOK_S = 0.5
"""How often a claim is renewed while somebody waits for it, in seconds."""


class QueueThread(Protocol):
    """The thread that alone uses a queue."""

    @property
    def machine_queue(self) -> MachineQueue:
        """The queue, for what the thread does."""
        ...

    @property
    def address(self) -> str:
        """Where machines join."""
        ...

    def do(self, job: Callable[[], None]) -> None:
        """Have the thread do a job, after those that it was given before."""
        ...


class TcpChannel:
    """A child process at a machine that joined; until one does, it waits for it."""

    def __init__(
        self,
        thread: QueueThread,
        *,
        group: str,
        model: str,
        gpus: int,
        replica: object,
        patience_s: float | None = None,
    ) -> None:
        self._thread = thread
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unsent: list[bytes] = []
        self._parting: Parting | None = None
        self._loaded = False
        self._outstanding: dict[int, int] = {}
        self._claim = WorkerClaim(
            group=group,
            model=model,
            gpus=gpus,
            replica=replica,
            patience_s=patience_s,
            on_frame=self._frames.put,
            on_given=self._given,
            on_end=self._end_with,
        )
        thread.do(partial(thread.machine_queue.claim, self._claim))

    @property
    def pid(self) -> int | None:
        """None: the process runs elsewhere."""
        return None

    @property
    def name(self) -> str:
        """What the worker is called in messages."""
        member = self._claim.member
        return "a worker that is to join" if member is None else f"the worker at {member.name}"

    @property
    def waits(self) -> bool:
        """Whether no machine has been found yet."""
        return self._claim.member is None and self._parting is None

    def send(self, frame: wire.Frame, limit_s: float) -> bool:
        """Send one frame; the connection's own heartbeat finds out if nobody reads."""
        del limit_s
        self._claim.polled = time.monotonic()
        if self._parting is not None:
            raise self._ended()
        self._note_sent(frame)
        self._thread.do(partial(self._post, wire.body(frame)))
        return True

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next frame, or None when none came within `timeout_s` seconds."""
        until = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            self._claim.polled = now
            try:
                body = self._frames.get(timeout=max(0.0, min(LOOK_S, until - now)))
            except queue.Empty:
                if now >= until:
                    return None
            else:
                return self._read(body)

    def end(self) -> str:
        """Say how the worker ended, once it has."""
        return "" if self._parting is None else self._parting.how

    def last_words(self) -> str:
        """Say what its machine told of its end."""
        words = "" if self._parting is None else self._parting.words
        return words or f"workers join at {self._thread.address}"

    def reject(self, why: str) -> bool:
        """End a worker whose machine cannot serve the model; another machine may."""
        self._thread.do(partial(self._thread.machine_queue.unfit, self._claim, why))
        self.kill()
        return True

    def kill(self) -> None:
        """Have the worker's machine end it, and every process that it started, at once."""
        self._withdraw(grace=False)

    def close(self) -> None:
        """Have its machine end the worker; after a grace period, kill it."""
        self._withdraw(grace=True)

    def _withdraw(self, *, grace: bool) -> None:
        self._parting = self._parting or Parting("killed", "", "worker")
        self._frames.put(None)
        self._thread.do(partial(self._thread.machine_queue.withdraw, self._claim, grace=grace))

    def _read(self, body: bytes | None) -> wire.Frame:
        if body is None:
            # Put the end mark back: later calls must see it, too.
            self._frames.put(None)
            if self._parting is not None and self._parting.fatal:
                return {"op": "failed", "message": self._parting.how}
            raise self._ended()
        frame = wire.read_body(body)
        self._note_came(frame)
        if frame["op"] == "failed" and not self._loaded:
            # It cannot load the model, but another machine may have what it lacks.
            self.reject(frame["message"])
            self._parting = Parting(frame["message"], "", "nobody")
            raise self._ended()
        return frame

    def _ended(self) -> ChannelEndedError:
        return ChannelEndedError("worker" if self._parting is None else self._parting.blame)

    def _note_sent(self, frame: wire.Frame) -> None:
        """Count what is asked: a worker that has been asked for nothing idles."""
        if frame["op"] == "item":
            stream: int = frame["stream"]
            self._outstanding[stream] = self._outstanding.get(stream, 0) + 1
        elif frame["op"] == "cancel":
            self._outstanding.pop(frame["stream"], None)
        self._note_idle()

    def _note_came(self, frame: wire.Frame) -> None:
        if frame["op"] == "ready":
            self._loaded = True
            self._thread.do(partial(self._thread.machine_queue.loaded, self._claim))
        elif frame["op"] == "result" and frame["stream"] in self._outstanding:
            self._outstanding[frame["stream"]] -= 1
        self._note_idle()

    def _note_idle(self) -> None:
        idles = self._loaded and not any(self._outstanding.values())
        since = self._claim.idle_since
        self._claim.idle_since = (since or time.monotonic()) if idles else None

    # What follows is done by the machine_queue's thread.

    def _post(self, body: bytes) -> None:
        claim = self._claim
        if claim.member is None:
            self._unsent.append(body)
        elif claim.session in claim.member.claims:
            claim.member.site.post(claim.session, body)

    def _given(self) -> None:
        unsent, self._unsent = self._unsent, []
        for body in unsent:
            self._post(body)

    def _end_with(self, parting: Parting) -> None:
        self._parting = self._parting or parting
        self._frames.put(None)
