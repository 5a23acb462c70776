"""Keeps a worker process alive: restarts it when it dies or hangs, and has it prove its weights.

A worker that dies, or gives no result for too long while something is in flight, is killed with its
process group and restarted after a pause that doubles; after too many deaths in a row it is given
up. What it had in flight is the business of the stream that sent it (see `sent_stream`).
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    EngineError,
    Measure,
    MeasureResult,
    ScoreBatch,
    ScoreRequest,
)
from .work import LOAD_S, MEASURE, In, Out, WorkKind
from .worker import Worker, WorkerDeathError, WorkerInfo
from .worker_line import WAIT_S, WorkerLine

logger = logging.getLogger("lpfloop.worker")

BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 8.0
SUSPICIOUS = 2
"""Deaths with the same batch in flight before a search for the cause starts."""

CLOSED = "the model was closed"

Proof = Callable[[Measure], None]
"""Measures a worker's weights; raises EngineError if they are not those that are meant."""


class GivenUpError(EngineError):
    """A model whose workers die or hang again and again."""


class Supervisor:
    """Holds one worker, counts its deaths in a row, and restarts it.

    After it has given up, the next call counts from zero again. One thread uses it, but any may
    close it: what it does then ends with an error. With a `proof` each worker proves its weights
    before it is given work.
    """

    def __init__(self, start: Callable[[], Worker], *, restarts: int, stall_s: float) -> None:
        self._start = start
        self._restarts = restarts
        self._losses = 0
        self.stall_s = stall_s
        self.good: dict[str, Any] = {}
        self.proof: Proof | None = None
        self._proved: Worker | None = None
        self._changing = threading.Lock()
        self._closed = False
        self._worker: Worker | None = self._started()

    @property
    def pid(self) -> int | None:
        """The present worker's process id, or None."""
        return None if self._worker is None else self._worker.pid

    @property
    def waits(self) -> bool:
        """Whether no node has had room for the present worker yet."""
        worker = self._worker
        return worker is not None and worker.waits

    @property
    def last_chance(self) -> bool:
        """Whether another death would be the last."""
        return self._losses >= self._restarts

    @property
    def suspicious(self) -> int:
        """Deaths with the same batch in flight before a search for the cause starts."""
        return min(SUSPICIOUS, self._restarts)

    def ready(self) -> WorkerInfo:
        """Wait for a worker that has loaded its model.

        Raises:
            EngineError: as `loaded`.
        """
        while (found := self.loaded(WAIT_S)) is None:
            pass
        return found[1]

    def loaded(self, within_s: float) -> tuple[Worker, WorkerInfo] | None:
        """Return a worker that has loaded its model and proved it; None if there is none soon.

        Raises:
            EngineError: when the model cannot be loaded, is another one, or workers die in a row.
        """
        try:
            worker = self._present()
            info = worker.ready(LOAD_S, within_s)
            if info is None:
                return None
            self._prove(worker)
        except WorkerDeathError as death:
            self.lost(death)
            return None
        except EngineError:
            self._drop()
            raise
        return worker, info

    def prove(self, proof: Proof | None) -> None:
        """Have workers prove their weights from now on; the present one does so at once.

        One that waits for a node does it later.

        Raises:
            EngineError: if it does not run the weights.
        """
        self.proof, self._proved = proof, None
        while proof is not None and not self.waits and self.loaded(WAIT_S) is None:
            pass

    def _prove(self, worker: Worker) -> None:
        if self.proof is None or worker is self._proved:
            return
        self.proof(partial(self._measured, worker))
        self._proved = worker

    def _measured(
        self, worker: Worker, conversations: Sequence[tuple[Message, ...]]
    ) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation, before the worker is asked anything else."""
        requests = (
            ScoreRequest(request_id=str(number), messages=messages)
            for number, messages in enumerate(conversations)
        )
        batch = ScoreBatch(key="canary", requests=tuple(requests))
        return list(self.asked(worker, batch, MEASURE).logprobs)

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
        """Return the error for a worker that cannot be kept alive, after its last death."""
        times, self._losses = self._losses, 0
        return GivenUpError(f"{death} (given up: {times} deaths in a row without a result)")

    def line(self, worker: Worker, window: int, work: WorkKind[Any, Any]) -> WorkerLine:
        """Begin a stream to a worker, under the stall limit of the moment."""
        return WorkerLine(worker, window, work, lambda: self.stall_s)

    def order(self, work: WorkKind[ScoreBatch, MeasureResult], *, anew: bool = False) -> None:
        """Have the worker do what takes no requests, and wait until it is done.

        One that waits for a node has nothing to do; `anew`: it is replaced by a new one, as what
        it was to load is not wanted any more.

        Raises:
            EngineError: if it cannot be done.
        """
        while True:
            if self._present().waits:
                if anew:
                    self._drop()
                return
            found = self.loaded(WAIT_S)
            if found is None:
                continue
            try:
                self.asked(found[0], ScoreBatch(key=work.task, requests=()), work)
            except WorkerDeathError as death:
                self.lost(death)
            else:
                self.progressed()
                return

    def asked(self, worker: Worker, item: In, work: WorkKind[In, Out]) -> Out:
        """Return a worker's result of one item, with nothing else in flight.

        Raises:
            WorkerDeathError: when it dies or hangs.
        """
        line = self.line(worker, 0, work)
        line.send({"op": "item", **work.encode(item)})
        while (frame := line.receive(WAIT_S)) is None:
            pass
        line.leave()
        return work.decode(frame)

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
        """End the worker, if there is one."""
        with self._changing:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
