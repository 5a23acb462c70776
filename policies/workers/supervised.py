"""Engines and scorers in worker processes that are restarted when they die or hang.

A worker that dies, or gives no result for too long while something is in flight, is killed with its
process group and restarted after a pause that doubles. The batches in flight are sent again in
order with their own seeds; no result is given twice. A batch that is in flight at a second death
starts a search for the request that causes it (see `poison`): only that request fails. A batch
examined request by request is drawn without its usual neighbours, which may change the last bits of
its log-probabilities or scores.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic

from ..engines.engine import (
    EngineError,
    MeasureResult,
    ScoreBatch,
)
from ..engines.feed import arrived, is_cancelled
from . import wire
from .poison import PoisonSearch, good_request
from .work import (
    LOAD_S,
    In,
    Out,
    WorkKind,
)
from .worker import Worker, WorkerDeathError, WorkerInfo

logger = logging.getLogger("lpfloop.worker")

POLL_S = 0.02
"""Seconds between looks at a source that has nothing yet."""

WAIT_S = 0.5
"""The longest wait for a frame, in seconds, before the stall limit is checked again."""

BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 8.0
SUSPICIOUS = 2
"""Deaths with the same batch in flight before a search for the cause starts."""

CLOSED = "the model was closed"


class GivenUpError(EngineError):
    """A model whose workers die or hang again and again."""


class Supervisor:
    """Holds one worker, counts its deaths in a row, and restarts it.

    After it has given up, the next call counts from zero again. One thread uses it, but any may
    close it: what it does then ends with an error.
    """

    def __init__(self, start: Callable[[], Worker], *, restarts: int, stall_s: float) -> None:
        self._start = start
        self._restarts = restarts
        self._losses = 0
        self.stall_s = stall_s
        self.good: dict[str, Any] = {}
        self._changing = threading.Lock()
        self._closed = False
        self._worker: Worker | None = self._started()

    @property
    def pid(self) -> int | None:
        """The present worker's process id, or None."""
        return None if self._worker is None else self._worker.pid

    @property
    def last_chance(self) -> bool:
        """Whether another death would be the last."""
        return self._losses >= self._restarts

    @property
    def suspicious(self) -> int:
        """Deaths with the same batch in flight before a search for the cause starts."""
        return min(SUSPICIOUS, self._restarts)

    def ready(self) -> tuple[Worker, WorkerInfo]:
        """Return a worker that has loaded its model.

        Raises:
            EngineError: when the model cannot be loaded, or workers die in a row.
        """
        while True:
            try:
                worker = self._present()
                return worker, worker.ready(LOAD_S)
            except WorkerDeathError as death:
                self.lost(death)
            except EngineError:
                self._drop()
                raise

    def progressed(self) -> None:
        """Note that the worker gave a result: its deaths are counted anew."""
        self._losses = 0

    def lost(self, death: WorkerDeathError) -> None:
        """Count a death, and wait before the next worker is started.

        Raises:
            EngineError: after too many deaths in a row, or once it is closed.
        """
        self._drop()
        if self._closed:
            raise EngineError(CLOSED)
        self._losses += 1
        if self._losses > self._restarts:
            raise self.surrender(death)
        pause = min(LONGEST_BACKOFF_S, BACKOFF_S * 2 ** (self._losses - 1))
        logger.warning("%s; restart %d of %d", death, self._losses, self._restarts)
        time.sleep(pause)

    def surrender(self, death: WorkerDeathError) -> GivenUpError:
        """Return the error for a worker that cannot be kept alive."""
        times, self._losses = self._losses, 0
        return GivenUpError(f"{death} (given up: {times} deaths in a row without a result)")

    def stream(self, items: Iterable[In], work: WorkKind[In, Out]) -> Iterator[Out]:
        """Send items while the worker has room, and yield its results as they come."""
        return _SentStream(self, items, work).results()

    def order(self, work: WorkKind[ScoreBatch, MeasureResult], key: str = "") -> None:
        """Have the worker do what takes no requests, and wait until it is done.

        Raises:
            EngineError: if it cannot be done.
        """
        for _ in self.stream([ScoreBatch(key=key, requests=())], work):
            pass

    def close(self) -> None:
        """End the worker."""
        with self._changing:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _present(self) -> Worker:
        """Return the worker, which is started if there is none."""
        with self._changing:
            if self._closed:
                raise EngineError(CLOSED)
            self._worker = self._worker or self._started()
            return self._worker

    def _started(self) -> Worker:
        try:
            return self._start()
        except OSError as error:
            raise EngineError(f"no worker process can be started: {error}") from error

    def _drop(self) -> None:
        with self._changing:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()


class _SentStream(Generic[In, Out]):
    """One call: its source of items, those in flight, and the line to the worker."""

    def __init__(
        self, supervisor: Supervisor, items: Iterable[In], work: WorkKind[In, Out]
    ) -> None:
        self._supervisor = supervisor
        self._source = iter(items)
        self._work = work
        self._more = True
        self._flight: dict[str, In] = {}
        self._deaths: Counter[str] = Counter()
        self._search: PoisonSearch[In, Out] | None = None
        self._line: _WorkerLine | None = None

    def results(self) -> Iterator[Out]:
        """Yield every item's result, in the order in which the worker finishes them."""
        try:
            while (self._more or self._flight) and not is_cancelled(self._source):
                try:
                    found = self._go_on() if self._search is None else self._examine(self._search)
                except WorkerDeathError as death:
                    self._bury(death)
                else:
                    yield from found
        finally:
            if self._line is not None:
                self._line.leave()

    def _go_on(self) -> Sequence[Out]:
        """Send the next item if there is room for it, or wait a little for a result."""
        line = self._connected()
        in_flight = sum(len(item.requests) for item in self._flight.values())
        room = self._more and in_flight < line.window
        take = room and (not self._flight or arrived(self._source))
        if self._flight:
            frame = line.receive(0 if take else POLL_S if room else WAIT_S)
            if frame is not None:
                return [self._settle(frame)]
        if take:
            self._send_next(line)
        return ()

    def _examine(self, search: PoisonSearch[In, Out]) -> Sequence[Out]:
        """Send one suspect alone and wait for its result."""
        line = self._connected()
        asked = search.ask(last_chance=self._supervisor.last_chance)
        if asked is None:
            raise self._supervisor.surrender(line.worker.hung("nothing else could be answered"))
        line.send({"op": "item", **self._work.encode(asked)})
        while (frame := line.receive(WAIT_S)) is None:
            pass
        self._supervisor.progressed()
        whole = list(search.answered(self._work.decode(frame)))
        self._supervisor.good[self._work.task] = search.good
        for result in whole:
            del self._flight[result.key]
        if search.over:
            self._search = None
        return whole

    def _connected(self) -> "_WorkerLine":
        """Return the line to a worker; to a new one, send again what is in flight."""
        if self._line is None:
            worker, info = self._supervisor.ready()
            self._line = _WorkerLine(worker, info.window, self._supervisor, self._work)
            if self._search is None:
                for item in self._flight.values():
                    self._line.send({"op": "item", **self._work.encode(item)})
        return self._line

    def _send_next(self, line: "_WorkerLine") -> None:
        item = next(self._source, None)
        if item is None:
            self._more = False
            return
        if item.key in self._flight:
            raise ValueError(f"two batches in flight have the key {item.key}")
        self._flight[item.key] = item
        line.send({"op": "item", **self._work.encode(item)})

    def _settle(self, frame: wire.Frame) -> Out:
        """Decode a result and remove its item from those in flight."""
        result = self._work.decode(frame)
        item = self._flight.pop(result.key)
        self._supervisor.progressed()
        good = good_request(item, result, self._work)
        if good is not None:
            self._supervisor.good[self._work.task] = good
        return result

    def _bury(self, death: WorkerDeathError) -> None:
        """Count a death against those in flight; start a search if due."""
        self._line = None
        if self._search is not None:
            self._search.died(death.how)
        self._supervisor.lost(death)
        self._deaths.update(self._flight.keys())
        if self._search is not None or self._work.refusal is None or not self._flight:
            return
        if max(self._deaths[key] for key in self._flight) >= self._supervisor.suspicious:
            logger.warning("searching %d batches for what ends the worker", len(self._flight))
            good = self._supervisor.good.get(self._work.task)
            self._search = PoisonSearch(list(self._flight.values()), self._work, good)


class _WorkerLine:
    """A stream to one worker, and the clock of its stalls."""

    def __init__(
        self, worker: Worker, window: int, supervisor: Supervisor, work: WorkKind[Any, Any]
    ) -> None:
        self.worker = worker
        self.window = window
        self._supervisor = supervisor
        self._work = work
        self._waiting = 0
        self._since = time.monotonic()
        self._number = worker.begin(work.task, supervisor.stall_s)

    def send(self, frame: wire.Frame) -> None:
        """Send an item; the clock starts if the worker was idle."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting += 1
        self.worker.send({**frame, "stream": self._number}, self._supervisor.stall_s)

    def receive(self, timeout_s: float) -> wire.Frame | None:
        """Return the next result of this stream, or None when none came in time.

        Raises:
            WorkerDeathError: when the worker has died, or has sent nothing for too long.
        """
        frame = self.worker.receive(timeout_s)
        now = time.monotonic()
        if frame is None:
            stall_s = max(self._supervisor.stall_s, self._work.patience_s)
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
            self.worker.send({"op": "cancel", "stream": self._number}, self._supervisor.stall_s)
