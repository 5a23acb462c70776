"""A process that holds a model: a child of this process, or an actor in a Ray cluster.

`hosted_model` handles a process that dies or hangs. The child runs `worker_main` in a separate
session, so that Ctrl-C reaches only the daemon; its output goes to a log file. It ends when its
connection closes, so it never outlives its parent.

The messages are pickled dataclasses. The process gets an `Opening` first. Then come calls, each
with a unique number: a call is a stream of items that ends with a `Cancel`, or a single `Order`.
Until the model is loaded the only replies are a `WorkerInfo` or a `Failure`.
"""

import copyreg
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from multiprocessing.connection import Connection, Pipe
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from ...configs.schema import EngineConfig, RewardConfig
from ...stores.records import Message
from ..devices import ANSWER_S
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    Completion,
    EngineError,
    Request,
    Result,
    ScoreBatch,
    ScoreRequest,
    UnloadableError,
    failed_completion,
)
from .environment import worker_environment
from .places import DeviceGroup

logger = logging.getLogger("lpfloop.worker")

LOAD_S = 3600.0
"""Seconds that a model may take to load, reload, fall asleep or wake; and that a replica waits for
room in a busy Ray cluster.
"""
WATCH_S = 2.0
"""Seconds between polls of a process or cluster that sends no signal, such as a parent."""

OrderTask = Literal["reload", "sleep", "wake"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """The data by which another machine finds a model, and checks that it is the right one.

    `identity` is the digest of model and chat template together. `address` is where in a bucket
    the model can be downloaded, if it was published there.
    """

    identity: str
    template: str | None
    address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The model to load; the type of `config` decides whether as engine or scorer.

    `model` is a folder, or the place of a reward function, which must then have the identity
    `function`. `source` is given to a process on another machine.
    """

    kind: str
    model: str
    config: EngineConfig | RewardConfig
    function: str | None = None
    source: ModelSource | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A batch of a call."""

    call: int
    task: str
    batch: Batch | ScoreBatch


@dataclass(frozen=True, slots=True)
class Cancel:
    """The end of a call: answers that are still missing are not needed any more."""

    call: int


@dataclass(frozen=True, slots=True)
class Order:
    """A change of the loaded model; `model` and `source` are only for `reload`."""

    call: int
    task: OrderTask
    model: str = ""
    source: ModelSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """The model is loaded.

    `window` is how many requests to send ahead; `sleeps`: whether it can leave its devices.
    """

    window: int
    sleeps: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one item of a call; None for an order that was carried out."""

    call: int
    result: Any = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an item or an order of a call fails, in this process and in any other."""

    call: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why the process ends: its model cannot be loaded, or cannot go on."""

    message: str


Frame = Opening | Item | Cancel | Order
Reply = WorkerInfo | Answer | Refusal | Failure

# Dataclasses with slots pickle field by field in Python; a tuple of the fields takes a fifth of the
# time. `Request.example` is a function that only a scripted judge in this process calls.
_SENT: dict[type[Any], tuple[str, ...]] = {
    Request: ("example",),
    Completion: (),
    ScoreRequest: (),
    Message: (),
}
_FIELDS = {
    kind: tuple(one.name for one in fields(kind) if one.name not in left_out)
    for kind, left_out in _SENT.items()
}


def _rebuilt(kind: type[Any], values: tuple[Any, ...]) -> Any:
    return kind(**dict(zip(_FIELDS[kind], values, strict=True)))


def _register(kind: type[Any]) -> None:
    values = attrgetter(*_FIELDS[kind])

    def reduced(sent: object) -> tuple[Any, ...]:
        return _rebuilt, (kind, values(sent))

    copyreg.pickle(kind, reduced)


for _kind in _FIELDS:
    _register(_kind)

In = TypeVar("In", Batch, ScoreBatch)
Ans = TypeVar("Ans")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKind(Generic[In, Ans]):
    """One kind of work.

    `worked`: whether the model computed an answer, which it does not for an overlong prompt.
    `refusal` makes the answer of a request that cannot be answered, from its id and the reason; it
    is None if a missing answer means that the model is at fault.
    """

    task: str
    worked: Callable[[Ans], bool]
    refusal: Callable[[str, str], Ans] | None

    def good(self, batch: In, result: Result[Ans]) -> In | None:
        """Return a batch of one request that the model has answered, or None."""
        pairs = zip(batch.requests, result.answers, strict=True)
        found = next((request for request, answer in pairs if self.worked(answer)), None)
        return None if found is None else replace(batch, requests=(found,))


GENERATE: WorkKind[Batch, Completion] = WorkKind(
    task="generate",
    worked=lambda completion: completion.completion_tokens > 0,
    refusal=failed_completion,
)

SCORE: WorkKind[ScoreBatch, float | None] = WorkKind(
    task="score",
    worked=lambda score: score is not None,
    refusal=lambda _request_id, _reason: None,
)

MEASURE: WorkKind[ScoreBatch, AnswerLogprob | None] = WorkKind(
    task="measure", worked=lambda logprob: logprob is not None, refusal=None
)

LOG_TAIL = 65536
TIMEVAL = struct.Struct("@ll")


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

    One thread at a time sends and takes; any may kill and close. `started` is the time at which the
    process began, or None while a cluster lacks room for it. `info` is set once it is loaded.
    """

    pid: int | None = None
    name: str = "worker process"

    def __init__(self, wake: threading.Event) -> None:
        self.started: float | None = time.monotonic()
        self.info: WorkerInfo | None = None
        self._replies: deque[Reply | None] = deque()
        self._wake = wake

    def send(self, frame: Frame, limit_s: float) -> None:
        """Send a frame; a busy process still reads, so this does not wait for its work.

        Raises:
            WorkerDeathError: when it has died, or has read nothing for `limit_s` seconds.
        """
        try:
            self._put(frame, limit_s)
        except BlockingIOError as error:
            raise self.kill_hung(f"nothing read for {limit_s:.0f} s") from error
        except OSError as error:
            raise self._death("died", self._describe_end()) from error

    def take(self) -> Answer | Refusal | None:
        """Return the next answer; None if none has come.

        Raises:
            UnloadableError: when the process reports that its model cannot be loaded.
            WorkerDeathError: when it has died, or reports that it cannot go on.
        """
        while self._replies:
            match self._replies.popleft():
                case WorkerInfo() as info:
                    self.info = info
                case Failure(message):
                    self.kill()
                    if self.info is None:
                        raise UnloadableError(message)
                    raise self._death("gave up", message)
                case None:
                    # For later calls, which must see it, too.
                    self._replies.append(None)
                    raise self._death("died", self._describe_end())
                case reply:
                    return reply
        return None

    def kill_hung(self, how: str) -> WorkerDeathError:
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
    def _describe_end(self) -> str:
        """Wait for the end of a process that has closed its side; return briefly how it ended."""

    @abstractmethod
    def _last_words(self) -> str:
        """Return the place of its log, and the log's last line."""

    def _deliver(self, reply: Reply | None) -> None:
        """Deliver a reply; None at the end of the process."""
        self._replies.append(reply)
        self._wake.set()

    def _death(self, verb: str, how: str) -> WorkerDeathError:
        return WorkerDeathError(f"{self.name} {verb} ({how}); {self._last_words()}", how)


class ChildProcess(ModelProcess):
    """A child of this process, reached by a connection on its standard input."""

    def __init__(
        self,
        opening: Opening,
        wake: threading.Event,
        *,
        log: Path,
        devices: DeviceGroup = DeviceGroup(),  # noqa: B008 -- frozen
    ) -> None:
        logger.info("a worker process loads %s", opening.model)
        super().__init__(wake)
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
        # `take` reports a process that died at once.
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
                self._deliver(connection.recv())
        self._deliver(None)

    def _describe_end(self) -> str:
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
