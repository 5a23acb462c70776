"""The part of a Ray channel on the worker's node: an actor that holds the worker's pipe.

It relays frames and orders, so that the worker, its environment, its log and its end are those of a
child on one machine. The worker ends with the actor, whose end closes the worker's input.
"""

import os
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..devices import installed
from . import wire
from .channel import ChannelEndedError, PipeChannel
from .node_model import NodeModel
from .places import DeviceGroup
from .worker import opened_environment

UNREAD_S = 3600.0
"""How long the worker may read nothing; the head notices one that hangs, and ends it."""

TOGETHER = 256
"""The most frames of one reply."""


class RayAgent:
    """Holds a worker's process; threads of three groups call it: put, take, and the others.

    The first frame starts the worker, once its model is on this node. The worker sees the GPUs that
    Ray gave the actor, and no secret of the node.
    """

    def __init__(self, name: str) -> None:
        self._log = Path(tempfile.gettempdir()) / f"lpfloop-{os.getuid()}" / f"{name}.log"
        self._model = NodeModel()
        self._channel: PipeChannel | None = None
        self._fault = ""
        self._begun = threading.Event()
        self._early: dict[int, wire.Frame] = {}
        self._next = 0
        self._putting = threading.Lock()

    def met(self) -> Mapping[str, str | None]:
        """Say what runs here."""
        return {"version": installed("lpfloop"), "log": str(self._log)}

    def put(self, number: int, frame: wire.Frame) -> None:
        """Hand a frame to the worker, after those of lower numbers: Ray may call out of order."""
        with self._putting:
            self._early[number] = frame
            while self._next in self._early:
                self._hand_on(self._model.at_hand(self._early.pop(self._next)))
                self._next += 1

    def take(self, limit_s: float) -> tuple[list[wire.Frame], bool]:
        """Return the worker's next frames, and whether they are the last; wait for the first."""
        frames: list[wire.Frame] = []
        if not self._begun.wait(limit_s):
            return frames, False
        if self._channel is None:
            return [{"op": "failed", "message": self._fault}], True
        try:
            frame = self._channel.receive(limit_s)
            while frame is not None:
                frames.append(frame)
                frame = self._channel.receive(0) if len(frames) < TOGETHER else None
        except ChannelEndedError:
            return frames, True
        return frames, False

    def end(self) -> tuple[str, str]:
        """Wait for the worker's end; return how it ended, and its last words."""
        how = self._channel.end() if self._channel else "it did not start"
        return how, self._last_words()

    def kill(self) -> str:
        """End the worker at once; return its last words."""
        if self._channel:
            self._channel.kill()
        return self._last_words()

    def close(self) -> None:
        """End the worker; after a grace period, kill it."""
        if self._channel:
            self._channel.close()
        self._model.close()

    def _hand_on(self, frame: wire.Frame) -> None:
        if not self._begun.is_set():
            self._begin(frame)
        if self._channel:
            with suppress(ChannelEndedError):
                self._channel.send(frame, UNREAD_S)

    def _begin(self, opening: wire.Frame) -> None:
        environment = opened_environment(opening, DeviceGroup())
        try:
            self._channel = PipeChannel(log=self._log, environment=environment)
        except OSError as error:
            self._fault = f"no worker process can be started: {error}"
        self._begun.set()

    def _last_words(self) -> str:
        return self._channel.last_words() if self._channel else f"its log is {self._log}"
