"""A model in separate processes, its replicas; its answers do not depend on their number.

The thread that uses the model takes the caller's batches one by one, sends each to the replica with
the fewest requests in flight, and yields results as they come. Replicas come and go meanwhile: one
that leaves finishes its batches.

A process that dies, or gives no result for too long while requests are in flight, is killed and
restarted after a pause that doubles; after too many deaths in a row the replica is given up. The
batches in flight at a death are sent again in order with their own seeds, to any replica; no result
is given twice. A batch that is in flight at a second death starts a search for the request that
causes it (see `poison`): only that request fails. A batch examined request by request is drawn
without its usual neighbours, which may change the last bits of its log-probabilities or scores.
"""

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...configs.schema import EngineConfig, RewardConfig
from ...stores.records import Message
from ..engines.canary import CanaryRow, StaleWeightsError, prove
from ..engines.engine import (
    POLL_S,
    AnswerLogprob,
    Batch,
    BatchResult,
    EngineError,
    Result,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
    UnloadableError,
    take,
)
from .model_process import (
    GENERATE,
    LOAD_S,
    MEASURE,
    SCORE,
    Ans,
    Answer,
    Cancel,
    In,
    Item,
    ModelProcess,
    Order,
    OrderTask,
    Refusal,
    WorkerDeathError,
    WorkKind,
)
from .places import Placement
from .poison import PoisonSearch

logger = logging.getLogger("lpfloop.worker")

LONGEST_PAUSE = 8.0
"""Seconds of the longest pause before a restart; the first is a quarter of a second."""

SUSPICIOUS = 2
"""Deaths with the same batch in flight before a search for the cause starts."""

RETRIES = 3
"""How often a replica that gave up is tried again, without a result from it in between."""

TOGETHER = 16
"""Conversations that are measured by one process before it gets the next ones."""

CLOSED = "the model was closed"

Config = TypeVar("Config", EngineConfig, RewardConfig)


class GivenUpError(EngineError):
    """A replica whose processes keep dying or hanging."""

    code = "LPF-306"


USELESS = (GivenUpError, UnloadableError, StaleWeightsError)
"""Errors of a replica that cannot go on, while others may."""

Starter = Callable[[int, Placement, str, Config, threading.Event], ModelProcess]
"""Starts a process of the replica of a number at its place, on a folder, under a configuration.

The process sets the event when it has a reply. Raises OSError if it cannot be started.
"""


@dataclass(eq=False, kw_only=True, slots=True)
class Replica:
    """A process that is restarted, and the batches that it works on.

    Its number may be given to another one later. A `leaving` replica gets no further batches.
    `deaths` counts the deaths in a row without a result, `losses` how often it gave up so.
    `since` is the time of the process's last sign of life, `starts_at` that of the next restart.
    `ordered` is the process that is carrying out an order.
    """

    number: int
    placement: Placement
    process: ModelProcess | None = None
    proved: ModelProcess | None = None
    ordered: ModelProcess | None = None
    flight: dict[str, Any] = field(default_factory=dict[str, Any])
    search: "PoisonSearch[Any, Any] | None" = None
    deaths: int = 0
    losses: int = 0
    since: float = 0.0
    starts_at: float = 0.0
    leaving: bool = False

    @property
    def is_queued(self) -> bool:
        """Whether no node has had room for its process yet."""
        return self.process is not None and self.process.started is None

    @property
    def requests_in_flight(self) -> int:
        """The requests in flight."""
        return sum(len(item.requests) for item in self.flight.values())


@dataclass(kw_only=True, slots=True)
class _Call(Generic[In, Ans]):
    """A stream: its source, its next results, and the batches of processes that died."""

    number: int
    work: WorkKind[In, Ans]
    source: Iterator[In]
    more: bool = True
    returned: deque[In] = field(default_factory=deque[In])
    deaths: Counter[str] = field(default_factory=Counter[str])
    results: list[Result[Ans]] = field(default_factory=list[Result[Ans]])


class HostedModel(Generic[Config]):
    """An engine or a scorer with a replica at each of `placements`; all start to load at once.

    One thread at a time uses it; any may configure and close it. While it sleeps its devices may be
    lent to others, so it changes its size only when it wakes.
    """

    def __init__(
        self,
        start: Starter[Config],
        model: str,
        config: Config,
        placements: Callable[[Config], Sequence[Placement]],
    ) -> None:
        self._start = start
        self._model = model
        self._config = config
        self._placements = placements
        # Scorers have the limits that engines have by default.
        limits = config if isinstance(config, EngineConfig) else EngineConfig()
        self._restarts, self._hang_timeout_s = limits.restarts, limits.hang_timeout_s
        self._numbers = count(1)
        self._good: dict[str, Any] = {}
        self._canary: Sequence[CanaryRow] = ()
        self._busy = threading.Lock()
        self._wake = threading.Event()
        # Guards the fields below; held only briefly, also by threads that do not use the model.
        self._changing = threading.Lock()
        self._closed = self._asleep = False
        self._leaving: list[Replica] = []
        self._endings: list[threading.Thread] = []
        self.replicas: list[Replica] = []
        try:
            self._resize()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int | None]:
        """The ids of the present processes; None for one in a cluster, or that is not there."""
        return [None if r.process is None else r.process.pid for r in self.replicas]

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole."""
        return self.stream(batches, GENERATE)

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; yield each when it is whole."""
        return self.stream(batches, SCORE)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation."""
        found = {int(r.key): r.answers for r in self.stream(_measurable(conversations), MEASURE)}
        return [logprob for number in sorted(found) for logprob in found[number]]

    def stream(self, items: Iterable[In], work: WorkKind[In, Ans]) -> Iterator[Result[Ans]]:
        """Send items to the replicas while they have room, and yield results as they come.

        Raises:
            EngineError: if the last replica cannot be loaded or kept alive, or one refuses an item.
        """
        with self._while_open():
            call = _Call(number=next(self._numbers), work=work, source=iter(items))
            try:
                while self._goes_on(call):
                    self._let_go()
                    error = self._advance_all(call)
                    yield from call.results
                    if error is not None:
                        raise error
                    wait_s = self._hand_out(call)
                    if not call.results and self._goes_on(call):
                        self._wait(min(self._left_s(), wait_s))
            finally:
                self._leave(call)

    def prove(self, rows: Sequence[CanaryRow]) -> None:
        """Measure the trainer's rows with every replica now, and before each process's first task.

        Raises:
            StaleWeightsError: for the first replica that does not run the weights.
            EngineError: the first replica's error, if all replicas fail to load.
        """
        self._canary = rows
        for replica in self.replicas:
            replica.proved = None
        self._order()

    def reload(self, folder: Path) -> None:
        """Replace the weights of every replica by those in another folder, of the same form.

        Later processes load that folder, too, also of a replica that cannot reload. Nothing proves
        the weights from now on.

        Raises:
            EngineError: if all fail.
        """
        self._model, self._canary = str(folder), ()
        self._order("reload")

    def can_sleep(self) -> bool:
        """Return whether sleep frees memory, once the model is loaded."""
        processes = self._order()
        return all(process.info and process.info.sleeps for process in processes)

    def sleep(self) -> None:
        """Move every replica into the machine's memory; nothing may be in flight."""
        with self._changing:
            self._asleep = True
        self._order("sleep")

    def wake(self) -> None:
        """Move every replica back to its devices, then take the size that was set meanwhile.

        Raises:
            EngineError: if all fail, or no further process can be started.
        """
        self._order("wake")
        with self._changing:
            self._asleep = False
        self._resize()

    def configure(self, config: Config) -> None:
        """Use the new stall limit and the new number of replicas from now on.

        Raises:
            ConfigError: for devices or replicas that the machine cannot follow.
            EngineError: if a process cannot be started.
        """
        self._placements(config)
        before, self._config = self._config, config
        try:
            self._resize()
        except EngineError:
            self._config = before
            raise
        if isinstance(config, EngineConfig):
            self._hang_timeout_s = config.hang_timeout_s
        self._wake.set()
        # Another thread that uses the model does it.
        if self._busy.acquire(blocking=False):
            self._let_go()
            self._busy.release()

    def close(self) -> None:
        """End every process; a running stream ends with an error."""
        with self._changing:
            self._closed = True
            for replica in self._all():
                self._end(replica)
        self._wake.set()
        for ending in self._endings:
            ending.join()

    def _all(self) -> list[Replica]:
        return [*self.replicas, *self._leaving]

    @contextmanager
    def _while_open(self) -> Generator[None]:
        with self._busy:
            self._require_open()
            yield
            self._let_go()

    def _require_open(self) -> None:
        if self._closed:
            raise EngineError(CLOSED)

    def _wait(self, seconds: float) -> None:
        """Wait until a process has a reply, or somebody changes the model, or time is up."""
        self._wake.wait(None if seconds == math.inf else max(0.0, seconds))
        self._wake.clear()
        self._require_open()

    # a call

    def _goes_on(self, call: _Call[Any, Any]) -> bool:
        """Whether items of a call may come, or are not answered yet."""
        return bool(call.more or call.returned or any(r.flight for r in self._all()))

    def _advance_all(self, call: _Call[In, Ans]) -> EngineError | None:
        """Take the results of all replicas; return the error that ends the call."""
        call.results = []
        try:
            for replica in self._all():
                self._advance(call, replica)
        except EngineError as error:
            return error
        return None

    def _advance(self, call: _Call[In, Ans], replica: Replica) -> None:
        """Take a replica's results; have it restarted, or examine its batches, if it died."""
        try:
            process = self._ready(replica)
            if process is None:
                return
            while (reply := process.take()) is not None:
                # Also an answer to an earlier call shows that the process lives.
                replica.since = time.monotonic()
                if reply.call == call.number:
                    if isinstance(reply, Refusal):
                        raise EngineError(reply.reason)
                    replica.deaths = replica.losses = 0
                    self._settle(call, replica, reply.result)
            if replica.search is not None and not replica.search.is_waiting:
                item = replica.search.ask(last_chance=replica.deaths >= self._restarts)
                if item is None:
                    raise self._surrender(
                        replica, process.kill_hung("nothing else could be answered")
                    )
                replica.since = time.monotonic()
                self._send(call, process, item)
            if replica.flight and self._is_late(replica):
                raise process.kill_hung(f"no result for {self._hang_timeout_s:.0f} s")
        except WorkerDeathError as death:
            self._bury(call, replica, death)
        except USELESS as error:
            self._take_back(call, replica)
            self._lose(replica, error)

    def _settle(self, call: _Call[In, Ans], replica: Replica, result: Result[Ans]) -> None:
        """Remove answered items from the items in flight; in a search only the whole ones."""
        search, task = replica.search, call.work.task
        if search is None:
            good = call.work.good(replica.flight[result.key], result)
            whole = [result]
        else:
            whole = list(search.take_result(result))
            good = search.good
            if search.is_over:
                replica.search = None
        self._good[task] = good or self._good.get(task)
        for one in whole:
            del replica.flight[one.key]
        call.results += whole

    def _send(self, call: _Call[In, Ans], process: ModelProcess, item: In) -> None:
        process.send(Item(call.number, call.work.task, item), self._hang_timeout_s)

    def _hand_out(self, call: _Call[In, Ans]) -> float:
        """Send the next items to the replicas with the least to do, while there is room.

        Return the seconds after which there may be others.
        """
        while True:
            free = [(r, process) for r in self.replicas if (process := self._with_room(r))]
            if not free:
                return math.inf
            item = self._next_item(call)
            if item is None:
                return POLL_S if call.more else math.inf
            replica, process = min(free, key=lambda one: one[0].requests_in_flight)
            if not replica.flight:
                replica.since = time.monotonic()
            replica.flight[item.key] = item
            try:
                self._send(call, process, item)
            except WorkerDeathError as death:
                self._bury(call, replica, death)

    def _with_room(self, replica: Replica) -> ModelProcess | None:
        """Return a replica's process if it can take another item."""
        process = replica.process
        if process is None or process.info is None or replica.search is not None:
            return None
        proved = not self._canary or replica.proved is process
        return process if proved and replica.requests_in_flight < process.info.window else None

    def _next_item(self, call: _Call[In, Ans]) -> In | None:
        """Return an item of a process that died, else the caller's next item, if ready."""
        if call.returned:
            return call.returned.popleft()
        if not call.more:
            return None
        flights = [replica.flight for replica in self._all() if replica.flight]
        try:
            item = take(call.source, wait=not flights)
        except StopIteration:
            call.more = False
            return None
        if item is not None and any(item.key in flight for flight in flights):
            raise ValueError(f"two batches in flight have the key {item.key}")
        return item

    def _bury(self, call: _Call[In, Ans], replica: Replica, death: WorkerDeathError) -> None:
        """Count a death against the batches in flight; start a search if due."""
        call.deaths.update(replica.flight.keys())
        if replica.search is not None:
            replica.search.note_death(death.how)
        try:
            self._count(replica, death)
        except GivenUpError as error:
            self._take_back(call, replica)
            self._lose(replica, error)
            return
        most = max((call.deaths[key] for key in replica.flight), default=0)
        if not most or call.work.refusal is None or most < min(SUSPICIOUS, self._restarts):
            self._take_back(call, replica)
        elif replica.search is None:
            logger.warning("searching %d batches for what ends the worker", len(replica.flight))
            good = self._good.get(call.work.task)
            replica.search = PoisonSearch(list(replica.flight.values()), call.work, good)

    def _take_back(self, call: _Call[In, Ans], replica: Replica) -> None:
        """Have a replica's batches sent again, before any others."""
        call.returned.extendleft(reversed(replica.flight.values()))
        replica.flight.clear()
        replica.search = None

    def _leave(self, call: _Call[Any, Any]) -> None:
        """Cancel a call; a dead process is noticed by the next one."""
        for replica in self._all():
            replica.flight.clear()
            replica.search = None
            if replica.process is not None and replica.process.info is not None:
                try:
                    replica.process.send(Cancel(call.number), self._hang_timeout_s)
                except WorkerDeathError as death:
                    logger.debug("a call is over: %s", death)

    # an order to all replicas

    def _order(self, task: OrderTask | None = None) -> list[ModelProcess]:
        """Wait until every replica is loaded, and has carried out an order; return the processes.

        Left out are replicas that give up or wait for a node, which a later call tries again, and
        ones that cannot be loaded, for good.
        """
        order = None if task is None else Order(next(self._numbers), task, self._model)
        done: list[ModelProcess] = []
        faults: list[EngineError] = []
        with self._while_open():
            pending = self.replicas
            for replica in pending:
                replica.ordered = None
            while pending := [r for r in pending if not self._settles(r, order, done, faults)]:
                self._wait(self._left_s())
        if faults and not done:
            raise faults[0]
        return done

    def _settles(
        self,
        replica: Replica,
        order: Order | None,
        done: list[ModelProcess],
        faults: list[EngineError],
    ) -> bool:
        """Whether there is nothing more to wait for from a replica."""
        try:
            process = self._after_order(replica, order)
        except StaleWeightsError as error:
            raise StaleWeightsError(self._name_replica(replica, error)) from error
        except GivenUpError as error:
            faults.append(error)
            return True
        except UnloadableError as error:
            faults.append(error)
            self._lose(replica, error)
            return True
        if process is not None:
            done.append(process)
            return True
        if replica.is_queued and order is not None and order.task == "reload":
            # The model that it was to load is obsolete.
            self._drop(replica)
            return True
        return replica.is_queued or replica.leaving

    def _after_order(self, replica: Replica, order: Order | None) -> ModelProcess | None:
        """Return a replica's process if it has carried out the order; None if it has not yet."""
        try:
            process = self._ready(replica)
            if process is None or order is None:
                return process
            if replica.ordered is not process:
                replica.ordered = process
                replica.since = time.monotonic() + LOAD_S - self._hang_timeout_s
                process.send(order, self._hang_timeout_s)
            while (reply := process.take()) is not None:
                if reply.call == order.call:
                    replica.ordered = None
                    if isinstance(reply, Answer):
                        replica.deaths = 0
                        return process
                    # The next process loads the model again.
                    self._drop(replica)
                    raise GivenUpError(reply.reason)
            if self._is_late(replica):
                raise process.kill_hung(f"no {order.task} for {LOAD_S:.0f} s")
        except WorkerDeathError as death:
            self._count(replica, death)
        return None

    # processes

    def _ready(self, replica: Replica) -> ModelProcess | None:
        """Return a replica's process once it has loaded its model and proved it; None before."""
        process = self._process_of(replica)
        if process is None:
            return None
        try:
            if process.info is None:
                process.take()
            if process.info is None:
                if time.monotonic() >= self._due(replica):
                    raise process.kill_hung(f"not loaded after {LOAD_S:.0f} s")
                return None
            if self._canary and replica.proved is not process:
                prove(lambda conversations: self._measure(process, conversations), self._canary)
                replica.proved = process
        except WorkerDeathError:
            raise
        except EngineError:
            self._drop(replica)
            raise
        return process

    def _process_of(self, replica: Replica) -> ModelProcess | None:
        """Return a replica's process; start it if it is due."""
        with self._changing:
            self._require_open()
            if replica.process is None and time.monotonic() >= replica.starts_at:
                replica.process = self._start_process(replica)
                replica.since = time.monotonic()
            return replica.process

    def _start_process(self, replica: Replica) -> ModelProcess:
        try:
            return self._start(
                replica.number, replica.placement, self._model, self._config, self._wake
            )
        except OSError as error:
            raise EngineError(f"no worker process can be started: {error}") from error

    def _measure(
        self, process: ModelProcess, conversations: Sequence[tuple[Message, ...]]
    ) -> list[AnswerLogprob | None]:
        """Measure conversations with one process that does nothing else yet."""
        number = next(self._numbers)
        found: list[AnswerLogprob | None] = []
        for batch in _measurable(conversations):
            process.send(Item(number, MEASURE.task, batch), self._hang_timeout_s)
            until = time.monotonic() + self._hang_timeout_s
            while not isinstance(reply := process.take(), Answer) or reply.call != number:
                if isinstance(reply, Refusal) and reply.call == number:
                    raise EngineError(reply.reason)
                if time.monotonic() >= until:
                    raise process.kill_hung(f"no result for {self._hang_timeout_s:.0f} s")
                if reply is None:
                    self._wait(until - time.monotonic())
            found += reply.result.answers
        process.send(Cancel(number), self._hang_timeout_s)
        # Replies of others may have come meanwhile.
        self._wake.set()
        return found

    def _left_s(self) -> float:
        """Return the seconds after which a replica must be looked at even if nothing happens."""
        return min(map(self._due, self._all()), default=math.inf) - time.monotonic()

    def _due(self, replica: Replica) -> float:
        process = replica.process
        if process is None:
            return replica.starts_at
        if process.info is None:
            return math.inf if process.started is None else process.started + LOAD_S
        busy = replica.flight or replica.ordered is process
        return replica.since + self._hang_timeout_s if busy else math.inf

    def _is_late(self, replica: Replica) -> bool:
        return time.monotonic() >= replica.since + self._hang_timeout_s

    def _count(self, replica: Replica, death: WorkerDeathError) -> None:
        """Count a death, and set the time of the next start."""
        self._drop(replica)
        self._require_open()
        replica.deaths += 1
        if replica.deaths > self._restarts:
            raise self._surrender(replica, death)
        logger.warning("%s; restart %d of %d", death, replica.deaths, self._restarts)
        replica.starts_at = time.monotonic() + min(LONGEST_PAUSE, 2.0**replica.deaths / 8)

    def _surrender(self, replica: Replica, death: WorkerDeathError) -> GivenUpError:
        """Return the error for a replica that cannot be kept alive, after its last death."""
        self._drop(replica)
        times, replica.deaths = replica.deaths, 0
        return GivenUpError(f"{death} (given up: {times} deaths in a row without a result)")

    def _lose(self, replica: Replica, error: EngineError) -> None:
        """Have a replica that cannot go on tried again, or leave it out."""
        with self._changing:
            if replica.leaving:
                return
            if len(self.replicas) == 1:
                raise error
            label = self._name_replica(replica, error)
            replica.losses += 1
            # A model that failed to load fails again, but other devices may hold it.
            kept = replica.losses <= RETRIES and isinstance(error, GivenUpError)
            if not kept:
                self._dismiss(replica)
            left = len(self.replicas)
        if kept:
            logger.warning("%s; tried again (%d of %d)", label, replica.losses, RETRIES)
        else:
            logger.warning("%s; left out: %d are left", label, left)

    def _name_replica(self, replica: Replica, error: EngineError) -> str:
        number = len(self.replicas)
        return f"replica {replica.number + 1} of {number}: {error}" if number > 1 else str(error)

    def _drop(self, replica: Replica) -> None:
        """End a replica's process, if it exists."""
        with self._changing:
            process, replica.process = replica.process, None
        if process is not None:
            process.kill()

    # the number of replicas

    def _resize(self) -> None:
        """Match the replicas to the placements."""
        with self._changing:
            if self._closed or self._asleep:
                return
            missing = Counter(self._placements(self._config))
            # Replicas that still wait for a node leave first.
            for replica in sorted(self.replicas, key=lambda replica: replica.is_queued):
                if not missing[replica.placement]:
                    self._dismiss(replica)
                else:
                    missing[replica.placement] -= 1
            for placement in missing.elements():
                taken = {replica.number for replica in self.replicas}
                number = next(n for n in count() if n not in taken)
                replica = Replica(number=number, placement=placement)
                replica.process = self._start_process(replica)
                self.replicas = [*self.replicas, replica]

    def _dismiss(self, replica: Replica) -> None:
        replica.leaving = True
        self.replicas = [other for other in self.replicas if other is not replica]
        self._leaving = [*self._leaving, replica]

    def _let_go(self) -> None:
        """End the leaving replicas that have finished their batches."""
        with self._changing:
            for replica in [replica for replica in self._leaving if not replica.flight]:
                self._leaving = [other for other in self._leaving if other is not replica]
                self._end(replica)

    def _end(self, replica: Replica) -> None:
        """End a replica's process in a thread, as it may take a while."""
        process, replica.process = replica.process, None
        if process is not None:
            self._endings.append(threading.Thread(target=process.close, daemon=True))
            self._endings[-1].start()


def _measurable(conversations: Sequence[tuple[Message, ...]]) -> Iterator[ScoreBatch]:
    for first in range(0, len(conversations), TOGETHER):
        part = enumerate(conversations[first : first + TOGETHER], first)
        requests = (ScoreRequest(request_id=str(n), messages=messages) for n, messages in part)
        yield ScoreBatch(key=str(first), requests=tuple(requests))
