"""A model in a separate process, which is restarted when it dies or hangs.

A process that dies, or gives no result for too long while requests are in flight, is killed and
restarted after a pause that doubles; after too many deaths in a row the model is given up. The
batches in flight at a death are sent again in order with their own seeds; no result is given twice.
A batch that is in flight at a second death starts a search for the request that causes it (see
`poison`): only that request fails. A batch examined request by request is drawn without its usual
neighbours, which may change the last bits of its log-probabilities or scores.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Generic

from ...configs.schema import EngineConfig, RewardConfig
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    EngineError,
    Measure,
    Result,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
)
from ..engines.feed import POLL_S, Feed, is_cancelled, take
from .model_process import ModelProcess, Starter, WorkerDeathError
from .node_model import moved
from .poison import PoisonSearch
from .work import (
    GENERATE,
    LOAD_S,
    MEASURE,
    SCORE,
    Ans,
    Answer,
    Cancel,
    In,
    Item,
    Opening,
    Order,
    OrderTask,
    Refusal,
    WorkerInfo,
    WorkKind,
)

logger = logging.getLogger("lpfloop.worker")

LONGEST_PAUSE = 8.0
"""Seconds of the longest pause before a restart; the first is a quarter of a second."""

NODE_WAIT_S = 30.0
"""Seconds that a restarted process may wait for a node before others get its batches in flight."""

SUSPICIOUS = 2
"""Deaths with the same batch in flight before a search for the cause starts."""

TOGETHER = 16
"""Conversations that are measured by one process before it gets the next ones."""

CLOSED = "the model was closed"

Proof = Callable[[Measure], None]
"""Measures a model's weights; raises EngineError if they are not the expected ones."""


class GivenUpError(EngineError):
    """A model whose processes keep dying or hanging, or that no node has room for."""

    code = "LPF-306"


class ModelCalls(ABC):
    """The calls of an engine and of a scorer, as streams of batches."""

    @abstractmethod
    def stream(self, items: Iterable[In], work: WorkKind[In, Ans]) -> Iterator[Result[Ans]]:
        """Work on items as they come; yield each result when it is whole, in any order."""

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole."""
        return self.stream(batches, GENERATE)

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; yield each when it is whole."""
        return self.stream(batches, SCORE)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation."""
        requests = [
            ScoreRequest(request_id=str(number), messages=messages)
            for number, messages in enumerate(conversations)
        ]
        batches = (
            ScoreBatch(key=str(first), requests=tuple(requests[first : first + TOGETHER]))
            for first in range(0, len(requests), TOGETHER)
        )
        found = {int(result.key): result.answers for result in self.stream(batches, MEASURE)}
        return [logprob for first in sorted(found) for logprob in found[first]]


@dataclass(kw_only=True, slots=True)
class _Call(Generic[In, Ans]):
    """A stream: its source, its batches in flight, and the process that has them.

    `since` is the time of the process's last sign of life, `node_by` the deadline of the wait for
    a node.
    """

    number: int
    work: WorkKind[In, Ans]
    source: Iterator[In]
    shared: bool = False
    more: bool = True
    flight: dict[str, In] = field(default_factory=dict[str, In])
    deaths: Counter[str] = field(default_factory=Counter[str])
    search: PoisonSearch[In, Ans] | None = None
    process: ModelProcess | None = None
    since: float = 0.0
    node_by: float | None = None

    @property
    def requests_in_flight(self) -> int:
        return sum(len(item.requests) for item in self.flight.values())


class HostedModel(ModelCalls):
    """An engine or a scorer whose model is in a process that `start` starts.

    One thread at a time uses it, but any may nudge and close it. With a `proof` each process
    proves its weights before its first task. After it has given up, the next call counts deaths
    from zero again.
    """

    def __init__(self, opening: Opening, start: Starter) -> None:
        self._opening = opening
        self._start = start
        # Scorers have the limits that engines have by default.
        limits = opening.config if isinstance(opening.config, EngineConfig) else EngineConfig()
        self._restarts, self._hang_timeout_s = limits.restarts, limits.hang_timeout_s
        self._deaths_in_row = 0
        self._numbers = count(1)
        self._good: dict[str, Any] = {}
        self.proof: Proof | None = None
        self._proved: ModelProcess | None = None
        self._changing = threading.Lock()
        self._closed = False
        self._process: ModelProcess | None = self._started()

    @property
    def pid(self) -> int | None:
        """The id of the present process, if it is on this machine."""
        process = self._process
        return None if process is None else process.pid

    @property
    def waits(self) -> bool:
        """Whether no node has had room for the present process yet."""
        process = self._process
        return process is not None and process.waits

    def nudge(self) -> None:
        """Make a stream look at its source at once: an item has come, or it was cancelled."""
        process = self._process
        if process is not None:
            process.nudge()

    def loaded(self) -> WorkerInfo | None:
        """Wait until the model is loaded; return None if nudged before.

        Raises:
            EngineError: when it cannot be loaded, is another one, or processes die in a row.
        """
        process = self._loaded(self._present(), LOAD_S)
        return None if process is None else process.info

    def stream(
        self, items: Iterable[In], work: WorkKind[In, Ans], *, shared: bool = False
    ) -> Iterator[Result[Ans]]:
        """Send items to the process while it has room, and yield its results as they come.

        After each item that a `Feed` among `items` gets, call `nudge`. If others `share` the items,
        batches in flight wait for a node only for a short time.

        Raises:
            EngineError: if the model cannot be loaded or kept alive, or refuses an item.
        """
        call = _Call(number=next(self._numbers), work=work, source=iter(items), shared=shared)
        try:
            while (call.more or call.flight) and not is_cancelled(call.source):
                try:
                    if call.search is None:
                        results = self._go_on(call)
                    else:
                        results = self._evaluate(call, call.search)
                except WorkerDeathError as death:
                    self._bury(call, death)
                else:
                    yield from results
        finally:
            self._leave(call)

    def prove(self, proof: Proof) -> None:
        """Prove the weights now, and the weights of each later process before its first task.

        Raises:
            EngineError: if they are not the expected ones.
        """
        self.proof, self._proved = proof, None
        while not self.waits and self.loaded() is None:
            pass

    def reload(self, folder: Path) -> None:
        """Replace the weights by those in another folder, of the same architecture.

        Restarted processes load that folder, too. Nothing proves the weights from now on.

        Raises:
            EngineError: if it cannot; the process, which may have some of them, has been ended.
        """
        self._opening = moved(self._opening, folder)
        self.proof = None
        try:
            if not self._order("reload"):
                # The model that it was to load on a node is obsolete.
                self._drop()
        except EngineError:
            self._drop()
            raise

    def can_sleep(self) -> bool:
        """Return whether sleep frees memory, once the model is loaded, if it has a node."""
        while not self.waits:
            if (info := self.loaded()) is not None:
                return info.sleeps
        return True

    def sleep(self) -> None:
        """Move the model into the machine's memory; nothing may be in flight."""
        self._order("sleep")

    def wake(self) -> None:
        """Move the model back to its devices; a restarted process has it there already."""
        self._order("wake")

    def configure(self, config: EngineConfig | RewardConfig) -> None:
        """Use an engine's new stall limit from now on."""
        if isinstance(config, EngineConfig):
            self._hang_timeout_s = config.hang_timeout_s
            self.nudge()

    def close(self) -> None:
        """End the process."""
        with self._changing:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.close()

    def _go_on(self, call: _Call[In, Ans]) -> Sequence[Result[Ans]]:
        """Send the next item if there is room for it, or wait for a result."""
        process = self._connected(call)
        if process is None or process.info is None:
            return ()
        room = call.more and call.requests_in_flight < process.info.window
        if room and self._send_next(call, process):
            return ()
        if not call.flight:
            return ()
        polled = room and call.more and not isinstance(call.source, Feed)
        answer = self._received(call, process, POLL_S if polled else None)
        return () if answer is None else [self._settle(call, answer.result)]

    def _send_next(self, call: _Call[In, Ans], process: ModelProcess) -> bool:
        """Send the next item; return False at the end, or to wait for others in flight instead."""
        try:
            item = take(call.source, wait=not call.flight)
        except StopIteration:
            call.more = False
            return False
        if item is None:
            return False
        if item.key in call.flight:
            raise ValueError(f"two batches in flight have the key {item.key}")
        if not call.flight:
            call.since = time.monotonic()
        call.flight[item.key] = item
        self._send(call, process, item)
        return True

    def _settle(self, call: _Call[In, Ans], result: Result[Ans]) -> Result[Ans]:
        """Remove an answered item from the items in flight."""
        item = call.flight.pop(result.key)
        self._deaths_in_row = 0
        good = call.work.good(item, result)
        if good is not None:
            self._good[call.work.task] = good
        return result

    def _evaluate(
        self, call: _Call[In, Ans], search: PoisonSearch[In, Ans]
    ) -> Sequence[Result[Ans]]:
        """Send one suspect alone and wait for its result."""
        process = self._connected(call)
        if process is None:
            return ()
        asked = search.ask(last_chance=self._deaths_in_row >= self._restarts)
        if asked is None:
            raise self._surrender(process.hung("nothing else could be answered"))
        call.since = time.monotonic()
        self._send(call, process, asked)
        while (answer := self._received(call, process)) is None:
            if is_cancelled(call.source):
                return ()
        self._deaths_in_row = 0
        whole = list(search.answered(answer.result))
        self._good[call.work.task] = search.good
        for result in whole:
            del call.flight[result.key]
        if search.over:
            call.search = None
        return whole

    def _connected(self, call: _Call[In, Ans]) -> ModelProcess | None:
        """Return a call's process; a new one gets the batches in flight again.

        None if it is not started yet.

        Raises:
            GivenUpError: if others share the items, and no node has room for a process.
        """
        if call.process is None:
            process = self._present()
            call.process = self._loaded(process, self._node_wait(call, process))
            call.since = time.monotonic()
            if call.process is not None and call.search is None:
                for item in call.flight.values():
                    self._send(call, call.process, item)
        return call.process

    def _node_wait(self, call: _Call[In, Ans], process: ModelProcess) -> float:
        """Return how many seconds a call may still wait for its process."""
        if not (call.shared and call.flight and process.waits):
            call.node_by = None
            return LOAD_S
        now = time.monotonic()
        call.node_by = call.node_by or now + NODE_WAIT_S
        if now >= call.node_by:
            raise GivenUpError(f"no node has had room for its process for {NODE_WAIT_S:.0f} s")
        return call.node_by - now

    def _send(self, call: _Call[In, Ans], process: ModelProcess, item: In) -> None:
        process.send(Item(call.number, call.work.task, item), self._hang_timeout_s)

    def _received(
        self, call: _Call[Any, Any], process: ModelProcess, wait_s: float | None = None
    ) -> Answer | None:
        """Wait for the next answer to a call; None if none came in time, or after a `nudge`.

        Raises:
            WorkerDeathError: when the process has died, or has given nothing for too long.
            EngineError: when it refuses an item.
        """
        left = call.since + self._hang_timeout_s - time.monotonic()
        reply = process.receive(left if wait_s is None else min(left, wait_s))
        if reply is None:
            if time.monotonic() >= call.since + self._hang_timeout_s:
                raise process.hung(f"no result for {self._hang_timeout_s:.0f} s")
            return None
        # Also an answer to an earlier, cancelled call shows that the process lives.
        call.since = time.monotonic()
        if reply.call != call.number:
            return None
        if isinstance(reply, Refusal):
            raise EngineError(reply.reason)
        return reply

    def _bury(self, call: _Call[In, Ans], death: WorkerDeathError) -> None:
        """Count a death against the batches in flight; start a search if due."""
        call.process = None
        if call.search is not None:
            call.search.died(death.how)
        self._lost(death)
        call.deaths.update(call.flight.keys())
        if call.search is not None or call.work.refusal is None or not call.flight:
            return
        if max(call.deaths[key] for key in call.flight) >= min(SUSPICIOUS, self._restarts):
            logger.warning("searching %d batches for what ends the worker", len(call.flight))
            good = self._good.get(call.work.task)
            call.search = PoisonSearch(list(call.flight.values()), call.work, good)

    def _leave(self, call: _Call[Any, Any]) -> None:
        """Cancel a call; a dead process is noticed by the next one."""
        if call.process is not None:
            try:
                call.process.send(Cancel(call.number), self._hang_timeout_s)
            except WorkerDeathError as death:
                logger.debug("a call is over: %s", death)

    def _loaded(self, process: ModelProcess, wait_s: float) -> ModelProcess | None:
        """Return a process once it has loaded its model and proved it; None if it has not yet.

        Raises:
            EngineError: when the model cannot be loaded, is another one, or processes die in a row.
        """
        try:
            if process.loaded(LOAD_S, wait_s) is None:
                return None
        except WorkerDeathError as death:
            self._lost(death)
            return None
        except EngineError:
            self._drop()
            raise
        if self.proof is None or process is self._proved:
            return process
        proof, self.proof = self.proof, None
        try:
            proof(self.logprobs)
        except EngineError:
            self._drop()
            raise
        finally:
            self.proof = proof
        # If it died meanwhile, the proof measured its successor.
        self._proved = self._process
        return self._process

    def _order(self, task: OrderTask) -> bool:
        """Make the process change its model, and wait until that is done.

        False if it waits for a node, and has no model yet.

        Raises:
            EngineError: if it cannot be done.
        """
        order = Order(next(self._numbers), task, self._opening.model, self._opening.sought)
        while True:
            process = self._present()
            if process.waits:
                return False
            if self._loaded(process, LOAD_S) is None:
                continue
            try:
                self._carry_out(process, order)
            except WorkerDeathError as death:
                self._lost(death)
            else:
                self._deaths_in_row = 0
                return True

    def _carry_out(self, process: ModelProcess, order: Order) -> None:
        process.send(order, self._hang_timeout_s)
        until = time.monotonic() + max(LOAD_S, self._hang_timeout_s)
        while (left := until - time.monotonic()) > 0:
            match process.receive(left):
                case Refusal(order.call, reason):
                    raise EngineError(reason)
                case Answer(order.call):
                    return
                case _:
                    pass
        raise process.hung(f"no {order.task} for {LOAD_S:.0f} s")

    def _lost(self, death: WorkerDeathError) -> None:
        """Count a death, and wait before the next process is started.

        Raises:
            EngineError: after too many deaths in a row, or once it is closed.
        """
        self._drop()
        if self._closed:
            raise EngineError(CLOSED)
        self._deaths_in_row += 1
        if self._deaths_in_row > self._restarts:
            raise self._surrender(death)
        logger.warning("%s; restart %d of %d", death, self._deaths_in_row, self._restarts)
        time.sleep(min(LONGEST_PAUSE, 2.0**self._deaths_in_row / 8))

    def _surrender(self, death: WorkerDeathError) -> GivenUpError:
        """Return the error for a model that cannot be kept alive, after its last death."""
        times, self._deaths_in_row = self._deaths_in_row, 0
        return GivenUpError(f"{death} (given up: {times} deaths in a row without a result)")

    def _present(self) -> ModelProcess:
        """Return the process, and start it if needed."""
        with self._changing:
            if self._closed:
                raise EngineError(CLOSED)
            self._process = self._process or self._started()
            return self._process

    def _started(self) -> ModelProcess:
        try:
            return self._start(self._opening)
        except OSError as error:
            raise EngineError(f"no worker process can be started: {error}") from error

    def _drop(self) -> None:
        """End the process, if it exists."""
        with self._changing:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
