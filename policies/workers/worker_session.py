"""One model at a machine that joined a run: a child process, and the threads between both ends."""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..devices import Gpu
from . import wire
from .channel import ChannelEndedError, PipeChannel
from .join_protocol import RELAY, Parcel, control
from .places import DeviceGroup
from .weights import NodeWeights
from .worker import opened_environment

WAIT_S = 3600.0
"""How long a child may say or read nothing: whether it hangs is the head's to decide."""


class WorkerSession:
    """One model on this machine: a child process, and the threads between it and the head."""

    def __init__(
        self,
        number: int,
        gpus: Sequence[Gpu],
        log: Path,
        *,
        send: Callable[[Parcel], None],
        say: Callable[[str], None],
    ) -> None:
        self.number = number
        self.gpus = gpus
        self._log = log
        self._send = send
        self._say = say
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._changing = threading.Lock()
        self._channel: PipeChannel | None = None
        self._over = False
        self._told = threading.Event()
        self._weights = NodeWeights()
        self._thread = threading.Thread(
            target=self._run, name=f"session-{self.number}", daemon=True
        )
        self._thread.start()

    def take(self, frame: bytes) -> None:
        """Take a frame for the child."""
        self._inbox.put(frame)

    def end(self, *, grace: bool) -> None:
        """End the child; `grace` lets it end by itself for a while.

        Without a child yet it is over at once: to find the weights may take long, and that thread
        is left to itself.
        """
        with self._changing:
            self._over = True
            channel = self._channel
        self._inbox.put(None)
        if channel is None:
            self._tell("killed", "")
        else:
            channel.close() if grace else channel.kill()

    def wait(self, limit_s: float) -> bool:
        """Wait `limit_s` seconds at most until the child is gone; return whether it is."""
        return self._told.wait(limit_s)

    def _run(self) -> None:
        """Open what the first frame says, and pass on what the child says (a thread's body)."""
        how, words = "its agent failed, and says why where it runs", ""
        try:
            how, words = self._ended()
        finally:
            # Always told: the head would wait for it.
            self._weights.close()
            self._tell(how, words)

    def _tell(self, how: str, words: str) -> None:
        """Tell the head how it ended, once."""
        with self._changing:
            if not self._told.is_set():
                self._send(control("ended", self.number, how=how, words=words))
                self._told.set()

    def _ended(self) -> tuple[str, str]:
        """Run the child to its end; return how it ended, and its last words."""
        first = self._inbox.get()
        if first is None:
            return "killed", ""
        opening = self._weights.at_hand(wire.read_body(first))
        try:
            channel = self._opened(opening)
        except OSError as error:
            return f"no worker process can be started: {error}", ""
        return ("killed", "") if channel is None else self._relay(channel, opening)

    def _opened(self, opening: wire.Frame) -> PipeChannel | None:
        group = DeviceGroup(gpus=tuple(self.gpus))
        self._say(f"session {self.number} loads {opening['model']} ({opening['role']})")
        with self._changing:
            if not self._over:
                environment = opened_environment(opening, group)
                self._channel = PipeChannel(log=self._log, environment=environment)
            return self._channel

    def _relay(self, channel: PipeChannel, opening: wire.Frame) -> tuple[str, str]:
        feeder = threading.Thread(target=self._feed, args=(channel, opening), daemon=True)
        feeder.start()
        try:
            while True:
                frame = channel.receive(WAIT_S)
                if frame is not None:
                    self._send(Parcel(RELAY, self.number, wire.body(frame)))
        except ChannelEndedError:
            how, words = channel.end(), channel.last_words()
        # Nobody waits for the feeder: it may be fetching what a reload names.
        self._inbox.put(None)
        self._say(f"session {self.number} ended ({how})")
        return how, words

    def _feed(self, channel: PipeChannel, opening: wire.Frame) -> None:
        """Pass on what the head says, the opening first (a thread's body)."""
        with suppress(ChannelEndedError):
            channel.send(opening, WAIT_S)
            while (frame := self._inbox.get()) is not None:
                channel.send(self._weights.at_hand(wire.read_body(frame)), WAIT_S)
