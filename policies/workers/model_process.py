"""A process that holds a model: a child of this process, or an actor in a Ray cluster.

`hosted_model` handles a process that dies or hangs. The child runs `worker_main` in a separate
session, so that Ctrl-C reaches only the daemon; its output goes to a log file. It ends when its
connection closes, so it never outlives its parent.
"""

import logging
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Literal, cast

from ..devices import ANSWER_S
from ..engines.engine import EngineError, UnloadableError
from .environment import worker_environment
from .places import DeviceGroup
from .work import Answer, Failure, Frame, Opening, Refusal, Reply, WorkerInfo

logger = logging.getLogger("lpfloop.worker")

LOG_TAIL = 65536
TIMEVAL = struct.Struct("@ll")

Woken = Literal["nudged", "ended"]


class WorkerDeathError(EngineError):
    """A worker that died or hangs; `how` is a short description, without a process id.

    The message also names the log, and the last line in it.
    """

    code = "LPF-307"

    def __init__(self, message: str, how: str) -> None:
        super().__init__(message)
        self.how = how


class ModelProcess(ABC):
    """A process that begins to load its model at once.

    One thread at a time sends and receives; any may nudge, kill and close. `started` is the time
    at which the process began, or None while a cluster lacks room for it.
    """

    pid: int | None = None
    name: str = "worker process"

    def __init__(self) -> None:
        self.started: float | None = time.monotonic()
        self.info: WorkerInfo | None = None
        self._replies: queue.SimpleQueue[Reply | Woken] = queue.SimpleQueue()

    @property
    def waits(self) -> bool:
        """Whether no node has had room for the process yet."""
        return self.started is None

    def loaded(self, limit_s: float, wait_s: float) -> WorkerInfo | None:
        """Wait until the model is loaded, which may take `limit_s` seconds from the start.

        None if it is not loaded yet, after `wait_s` seconds or after a `nudge`.

        Raises:
            UnloadableError: when it reports that its model cannot be loaded.
            WorkerDeathError: when it dies or takes too long.
        """
        if self.info is None:
            left = wait_s if self.started is None else self.started + limit_s - time.monotonic()
            self.receive(min(left, wait_s))
        until = None if self.started is None else self.started + limit_s
        if self.info is None and until is not None and time.monotonic() >= until:
            raise self.hung(f"not loaded after {limit_s:.0f} s")
        return self.info

    def send(self, frame: Frame, limit_s: float) -> None:
        """Send a frame; a busy process still reads, so this does not wait for its work.

        Raises:
            WorkerDeathError: when it has died, or has read nothing for `limit_s` seconds.
        """
        try:
            self._put(frame, limit_s)
        except BlockingIOError as error:
            raise self.hung(f"nothing read for {limit_s:.0f} s") from error
        except OSError as error:
            raise self._death("died", self._ended()) from error

    def receive(self, timeout_s: float) -> Answer | Refusal | None:
        """Return the next answer; None if none came in time, or after a `nudge`.

        Raises:
            UnloadableError: when the process reports that its model cannot be loaded.
            WorkerDeathError: when it has died, or reports that it cannot go on.
        """
        match self._next(timeout_s):
            case WorkerInfo() as info:
                self.info = info
                return None
            case Failure(message):
                self.kill()
                if self.info is None:
                    raise UnloadableError(message)
                raise self._death("gave up", message)
            case "ended":
                # For later calls, which must see it, too.
                self._replies.put("ended")
                raise self._death("died", self._ended())
            case Answer() | Refusal() as reply:
                return reply
            case _:
                return None

    def nudge(self) -> None:
        """Wake the thread that waits in `receive`."""
        self._replies.put("nudged")

    def hung(self, how: str) -> WorkerDeathError:
        """Kill a process that hangs; return the error to raise."""
        self.kill()
        return self._death("hangs", how)

    @abstractmethod
    def kill(self) -> None:
        """End the process, and every one that it started, at once."""

    @abstractmethod
    def close(self) -> None:
        """End the process; after a grace period, kill it."""

    @abstractmethod
    def _put(self, frame: Frame, limit_s: float) -> None:
        """Send a frame; raise BlockingIOError if it is not read, OSError if the reader is gone."""

    @abstractmethod
    def _ended(self) -> str:
        """Wait for the end of a process that has closed its side; return briefly how it ended."""

    @abstractmethod
    def _last_words(self) -> str:
        """Return the place of its log, and the log's last line."""

    def _next(self, timeout_s: float) -> Reply | Woken | None:
        try:
            return self._replies.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None

    def _death(self, verb: str, how: str) -> WorkerDeathError:
        return WorkerDeathError(f"{self.name} {verb} ({how}); {self._last_words()}", how)


Starter = Callable[[Opening], ModelProcess]
"""Starts a process that loads a model; raises OSError if it cannot."""


class ChildProcess(ModelProcess):
    """A child of this process, reached by a connection on its standard input."""

    def __init__(self, opening: Opening, *, log: Path, devices: DeviceGroup) -> None:
        super().__init__()
        self._log = log
        self._limit_s = 0.0
        # Its destructor closes it: a thread may still be sending when another kills the process.
        self._connection, theirs = Pipe()
        log.parent.mkdir(parents=True, exist_ok=True)
        with theirs, log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.worker_main"],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                env=worker_environment(opening.config, devices),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.name = f"worker process {self.pid}"
        self._ending = threading.Lock()
        self._gone = False
        self._reader = threading.Thread(target=self._read, name="worker-reader", daemon=True)
        self._reader.start()
        # `receive` reports a process that died at once.
        with suppress(WorkerDeathError):
            self.send(opening, ANSWER_S)

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
            # A process that left the group may still hold the other end.
            self._end_of_input()
            self._reader.join(ANSWER_S)

    def close(self) -> None:
        """End the child; after a grace period, kill it."""
        self._end_of_input()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_S)
        self.kill()

    def _put(self, frame: Frame, limit_s: float) -> None:
        if limit_s != self._limit_s:
            self._limit_s = limit_s
            whole = int(limit_s)
            limit = TIMEVAL.pack(whole, int((limit_s - whole) * 1e6))
            with self._socket() as ours:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._connection.send(frame)

    def _end_of_input(self) -> None:
        with suppress(OSError), self._socket() as ours:
            ours.shutdown(socket.SHUT_RDWR)

    def _socket(self) -> socket.socket:
        return socket.socket(fileno=os.dup(self._connection.fileno()))

    def _read(self) -> None:
        """Read the child's replies while it lives (the body of a thread)."""
        connection = cast("Connection[object, Reply]", self._connection)
        with suppress(EOFError, OSError):
            while True:
                self._replies.put(connection.recv())
        self._replies.put("ended")

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_S)
        self.kill()
        code = self._process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _last_words(self) -> str:
        return f"its log {self._log} ends: {last_line(self._log, self._log_start)}"


def last_line(log: Path, start: int = 0) -> str:
    """Return the last line that was written to a log from the position `start` on."""
    with log.open("rb") as written:
        end = written.seek(0, os.SEEK_END)
        written.seek(max(start, end - LOG_TAIL))
        lines = written.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing written)")


def child_processes(
    *,
    log: Path,
    devices: DeviceGroup = DeviceGroup(),  # noqa: B008 -- frozen
) -> Starter:
    """Return a starter of children of this process that print to `log`."""

    def start(opening: Opening) -> ModelProcess:
        logger.info("a worker process loads %s", opening.model)
        return ChildProcess(opening, log=log, devices=devices)

    return start
