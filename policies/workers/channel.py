"""The way to a worker: frames (see `wire`) to it and from it, and its end.

A channel alone knows where its worker runs. The worker of a PipeChannel is a child process in a
session of its own, so that Ctrl-C reaches the daemon alone; whatever it prints goes to a log file.
It ends when its input closes, so that none outlives its parent.
"""

import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Protocol, cast

from . import wire

READ_SIZE = 1 << 20
CLOSE_S = 10.0
LOG_TAIL = 65536


class ChannelEndedError(Exception):
    """The other end is gone: what is there to be read has been read."""


class Channel(Protocol):
    """The transport to one worker. One thread sends and receives; any may kill and close."""

    @property
    def pid(self) -> int | None:
        """The worker's process id, if it runs on this machine."""
        ...

    @property
    def name(self) -> str:
        """What the worker is called in messages."""
        ...

    @property
    def waits(self) -> bool:
        """Whether no node has had room for the worker yet."""
        ...

    def send(self, frame: wire.Frame, limit_s: float) -> bool:
        """Send one frame; return whether it went within `limit_s` seconds in which nothing is read.

        Raises:
            ChannelEndedError: when there is nobody to read it.
        """
        ...

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next frame, or None when none came within `timeout_s` seconds.

        Raises:
            ChannelEndedError: when none will come.
        """
        ...

    def end(self) -> str:
        """Wait for the end of a worker that has closed its side; say briefly how it ended."""
        ...

    def last_words(self) -> str:
        """Say where the worker's log is, and what it ends with."""
        ...

    def kill(self) -> None:
        """End the worker, and every process that it started, at once."""
        ...

    def close(self) -> None:
        """End the worker; after a grace period, kill it."""
        ...


class PipeChannel:
    """A child process on this machine, reached by its stdin and stdout."""

    def __init__(self, *, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self._frames: queue.SimpleQueue[wire.Frame | None] = queue.SimpleQueue()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.worker_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,
                env=dict(environment),
                start_new_session=True,
            )
        self._input = cast("FileIO", self._process.stdin)
        self._output = cast("FileIO", self._process.stdout)
        os.set_blocking(self._input.fileno(), False)
        self._reader = threading.Thread(target=self._read, name="worker-reader", daemon=True)
        self._reader.start()
        self._ending = threading.Lock()
        self._gone = False

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def name(self) -> str:
        """What the worker is called in messages."""
        return f"worker process {self.pid}"

    @property
    def waits(self) -> bool:
        """False: it runs."""
        return False

    def send(self, frame: wire.Frame, limit_s: float) -> bool:
        """Send one frame; a busy child still reads, so this does not wait for its work."""
        view = memoryview(wire.encode(frame))
        writable = select.poll()
        try:
            writable.register(self._input, select.POLLOUT)
            while view:
                # Writing to a full pipe returns None.
                view = view[self._input.write(view) or 0 :]
                if view and not writable.poll(limit_s * 1000):
                    return False
        except (BrokenPipeError, ValueError) as error:  # ValueError: closed on this side
            raise ChannelEndedError from error
        return True

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next frame, or None when none came within `timeout_s` seconds."""
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if frame is None:
            # Put the end mark back: later calls must see it, too.
            self._frames.put(None)
            raise ChannelEndedError
        return frame

    def end(self) -> str:
        """Wait for the child's end, kill what is left of it, and say how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self.kill()
        code = self._process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def last_words(self) -> str:
        """Say where the child's log is, and what it ends with."""
        return f"its log {self._log} ends: {self._last_line()}"

    def kill(self) -> None:
        """End the child and every process of its group at once."""
        with self._ending:
            if self._gone:
                return
            # Once only: the id of a group that is gone may be reused. Some systems raise
            # PermissionError if only the leader, already reaped, is left.
            self._gone = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._input.close()
            self._reader.join(CLOSE_S)
            self._output.close()

    def close(self) -> None:
        """End the child; after a grace period, kill it."""
        self._input.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self.kill()

    def _read(self) -> None:
        """Read the child's frames from its pipe while it lives (the body of a thread)."""
        decoder = wire.Decoder()
        while data := self._output.read(READ_SIZE):
            for frame in decoder.feed(data):
                self._frames.put(frame)
        self._frames.put(None)

    def _last_line(self) -> str:
        with self._log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - LOG_TAIL))
            lines = log.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing written)")
