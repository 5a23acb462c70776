"""A model of any number of replicas; its answers do not depend on their number.

Each replica is a `HostedModel` with a thread. The thread that consumes a stream takes the caller's
batches one by one, hands each to the replica with the fewest requests outstanding, and yields
results as they come. Batches of a replica that gave up are handed out again, so that none is lost
or given twice. Replicas come and go while streams are running: a new one joins them, one that
leaves finishes its batches. A single replica works in the thread of the consumer.
"""

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from ...configs.schema import EngineConfig, RewardConfig
from ..engines.canary import StaleWeightsError
from ..engines.engine import EngineError, Result, UnloadableError
from ..engines.feed import POLL_S, Feed, Source, take
from .hosted_model import CLOSED, GivenUpError, HostedModel, ModelCalls, Proof
from .places import Placement
from .work import Ans, In, WorkKind

logger = logging.getLogger("lpfloop.worker")

RETRIES = 3
"""How often a replica that gave up is tried again, without a result from it in between."""

GATHER_S = 2.0
"""Seconds that the first replica to have loaded waits for others that load at the same time: alone
it would take all of a small stage."""

USELESS = (GivenUpError, UnloadableError, StaleWeightsError)
"""Errors of a replica that cannot go on, while others may."""

Config = TypeVar("Config", EngineConfig, RewardConfig)
T = TypeVar("T")

Opener = Callable[[int, Placement, str, Config], HostedModel]
"""Opens the replica of a number at its place, on a folder, under a configuration."""


@dataclass(eq=False, kw_only=True)
class Replica:
    """A model in one process, and a thread; the user of the model holds `busy`.

    Its number may be given to another one later. A `leaving` replica is given no further work.
    `losses` counts how often it gave up in a row.
    """

    number: int
    placement: Placement
    model: HostedModel
    losses: int = 0
    leaving: bool = False
    busy: threading.Lock = field(default_factory=threading.Lock)
    thread: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, f"replica-{self.number}")

    def do(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job for the replica's thread.

        The job fails if the replica has left.
        """
        try:
            return self.thread.submit(self._done, job)
        except RuntimeError:
            failed: Future[T] = Future()
            failed.set_exception(EngineError(CLOSED))
            return failed

    def _done(self, job: Callable[[], T]) -> T:
        with self.busy:
            return job()


class Replicas(ModelCalls, Generic[Config]):
    """An engine or a scorer with a replica at each of `placements`; all start at once.

    While it sleeps its devices may be lent to others, so it changes its size only when it wakes.
    `streams` are queues that get a None whenever replicas come or go.
    """

    def __init__(
        self,
        opener: Opener[Config],
        model: str,
        config: Config,
        placements: Callable[[Config], Sequence[Placement]],
    ) -> None:
        self._opener = opener
        self._model = model
        self._config = config
        self._placements = placements
        self._proof: Proof | None = None
        self._changing = threading.Lock()
        self._closed = False
        self._asleep = False
        self._last_error: EngineError | None = None
        self._leaving: list[Replica] = []
        self.streams: list[queue.SimpleQueue[Any]] = []
        self.replicas: list[Replica] = []
        try:
            self._resize()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int | None]:
        """The ids of the present processes."""
        return [replica.model.pid for replica in self.replicas]

    def stream(self, items: Iterable[In], work: WorkKind[In, Ans]) -> Iterator[Result[Ans]]:
        """Work on items as they come; yield each result when it is whole, in any order.

        Raises:
            EngineError: if it was closed, or the last replica gave up.
        """
        source = iter(items)
        alone = _Alone(self, source)
        if alone.replica is not None:
            with alone.replica.busy:
                yield from alone.replica.model.stream(alone, work)
        if not alone.ended:
            yield from _SharedStream(self, source, work).results()

    def prove(self, proof: Proof) -> None:
        """Make every replica prove its weights now, and each later one before its first task.

        Raises:
            EngineError: as `proof` does, for the first replica without the weights; or the first
                replica's error, if all replicas fail to load.
        """
        self._proof = proof
        self._each(lambda model: model.prove(proof))

    def reload(self, folder: Path) -> None:
        """Replace the weights of every replica by those in another folder.

        A replica that fails starts again on that folder in the next stream.

        Raises:
            EngineError: if all fail.
        """
        self._model, self._proof = str(folder), None
        self._each(lambda model: _reload(model, folder))

    def can_sleep(self) -> bool:
        """Return whether sleep frees memory, once the model is loaded."""
        return all(self._each(lambda model: model.can_sleep()))

    def sleep(self) -> None:
        """Move every replica into the machine's memory; nothing may be in flight."""
        with self._changing:
            self._asleep = True
        self._each(lambda model: model.sleep())

    def wake(self) -> None:
        """Move every replica back to its devices, then take the size that was set meanwhile.

        Raises:
            EngineError: if all fail, or no further process can be started.
        """
        self._each(lambda model: model.wake())
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
        for replica in self.replicas:
            replica.model.configure(config)

    def close(self) -> None:
        """End every replica; running streams end with an error."""
        with self._changing:
            self._closed = True
            replicas, self.replicas = [*self.replicas, *self._leaving], []
            self._changed()
        ends = [threading.Thread(target=replica.model.close) for replica in replicas]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        for replica in replicas:
            replica.thread.shutdown(wait=False)

    def open_replicas(self) -> list[Replica]:
        """Return all replicas.

        Raises:
            EngineError: if it was closed; the last replica's error, if all of them were left out.
        """
        if not self.replicas:
            raise EngineError(CLOSED) if self._closed or not self._last_error else self._last_error
        return self.replicas

    def is_kept(self, replica: Replica, error: EngineError) -> bool:
        """Return whether a failed replica is tried again; leave it out if not.

        Raises:
            EngineError: its own, if it was the last.
        """
        with self._changing:
            if replica not in self.replicas:
                return False
            told = f"replica {replica.number + 1} of {len(self.replicas)}: {error}"
            replica.losses += 1
            # A model that failed to load fails again, but other devices may hold it.
            if replica.losses <= RETRIES and isinstance(error, GivenUpError):
                logger.warning("%s; tried again (%d of %d)", told, replica.losses, RETRIES)
                return True
            self._dismiss(replica)
            if not self.replicas:
                self._last_error = error
                raise error
        logger.warning("%s; left out: %d are left", told, len(self.replicas))
        return False

    def _resize(self) -> None:
        """Match the replicas to the placements; leaving replicas finish their batches."""
        with self._changing:
            if self._closed or self._asleep:
                return
            wanted = Counter(self._placements(self._config))
            # Replicas that still wait for a node leave first.
            for replica in sorted(self.replicas, key=lambda replica: replica.model.waits):
                if not wanted[replica.placement]:
                    self._dismiss(replica)
                else:
                    wanted[replica.placement] -= 1
            for placement in wanted.elements():
                self._add(placement)

    def _add(self, placement: Placement) -> None:
        taken = {replica.number for replica in self.replicas}
        number = next(n for n in count() if n not in taken)
        model = self._opener(number, placement, self._model, self._config)
        model.proof = self._proof
        replica = Replica(number=number, placement=placement, model=model)
        self.replicas = [*self.replicas, replica]
        self._changed()

    def _dismiss(self, replica: Replica) -> None:
        """Remove a replica once it has finished its batches."""
        self.replicas = [other for other in self.replicas if other is not replica]
        replica.leaving = True
        self._leaving = [*self._leaving, replica]
        self._changed()
        replica.do(partial(self._let_go, replica))

    def _let_go(self, replica: Replica) -> None:
        """End a replica that has finished its batches (the last job of its thread)."""
        replica.model.close()
        replica.thread.shutdown(wait=False)
        with self._changing:
            self._leaving = [other for other in self._leaving if other is not replica]

    def _changed(self) -> None:
        for events in list(self.streams):
            events.put(None)

    def _each(self, order: Callable[[HostedModel], T]) -> list[T]:
        """Run `order` on every replica concurrently; return the results.

        A replica that gives up is left out of the results: the next stream tries it again. One that
        cannot be loaded is left out for good.

        Raises:
            EngineError: if all fail, or one fails in another way.
        """
        replicas = self.open_replicas()
        jobs = [(replica, replica.do(partial(order, replica.model))) for replica in replicas]
        said: list[T] = []
        faults: list[EngineError] = []
        for replica, job in jobs:
            try:
                said.append(job.result())
            except StaleWeightsError as error:
                which = f"replica {replica.number + 1} of {len(jobs)}: " if len(jobs) > 1 else ""
                raise StaleWeightsError(f"{which}{error}") from error
            except GivenUpError as error:
                faults.append(error)
            except UnloadableError as error:
                faults.append(error)
                self.is_kept(replica, error)
            except EngineError:
                if not replica.leaving:
                    raise
        if faults and not said:
            raise faults[0]
        return said


def _reload(model: HostedModel, folder: Path) -> None:
    try:
        model.reload(folder)
    except UnloadableError:
        raise
    except EngineError as error:
        # Its process has been ended; the next one loads the folder.
        raise GivenUpError(str(error)) from error


class _Alone(Source[In]):
    """A source for a single replica, which ends early when others come."""

    def __init__(self, pool: "Replicas[Any]", source: Iterator[In]) -> None:
        self._pool = pool
        self._source = source
        self.ended = False
        replicas = pool.open_replicas()
        self.replica = replicas[0] if len(replicas) == 1 else None

    def __iter__(self) -> Iterator[In]:
        return self

    def __next__(self) -> In:
        return cast("In", self._taken(wait=True))

    def take(self) -> In | None:
        """Return the next item, or None if it has not arrived yet."""
        return self._taken(wait=False)

    def _taken(self, *, wait: bool) -> In | None:
        if self._pool.open_replicas() != [self.replica]:
            raise StopIteration
        try:
            return take(self._source, wait=wait)
        except StopIteration:
            self.ended = True
            raise


@dataclass(eq=False, kw_only=True)
class _Share(Generic[In]):
    """One replica's part of a stream; a `window` of 0 means that it still loads."""

    replica: Replica
    feed: Feed[In] = field(default_factory=Feed[In])
    away: dict[str, In] = field(default_factory=dict[str, In])
    window: int = 0
    outstanding: int = 0

    @property
    def has_room(self) -> bool:
        return self.outstanding < self.window and not self.replica.leaving

    def give(self, item: In) -> None:
        """Hand the replica an item."""
        self.away[item.key] = item
        self.outstanding += len(item.requests)
        self.feed.put(item)
        self.replica.model.nudge()

    def end(self, *, now: bool) -> None:
        """Stop giving the replica items; it finishes its own, or drops them `now`."""
        self.feed.cancel() if now else self.feed.finish()
        self.replica.model.nudge()


Event = Callable[[], Sequence[Result[Ans]]]
"""The next action of the consumer of a stream, after an event of a replica's thread."""


class _SharedStream(Generic[In, Ans]):
    """One stream over several replicas."""

    def __init__(
        self, pool: "Replicas[Any]", source: Iterator[In], work: WorkKind[In, Ans]
    ) -> None:
        self._pool = pool
        self._source = source
        self._work = work
        self._more = True
        self._gathered: float | None = None
        self._returned: deque[In] = deque()
        self._shares: dict[Replica, _Share[In]] = {}
        self._away: set[str] = set()
        self._events: queue.SimpleQueue[Event[Ans] | None] = queue.SimpleQueue()

    def results(self) -> Iterator[Result[Ans]]:
        """Yield every item's result, in the order in which the replicas finish them."""
        self._pool.streams.append(self._events)
        try:
            self._join_all()
            while self._more or self._returned or self._away:
                event = self._next_event(self._hand_out())
                if event is None:
                    self._join_all()
                else:
                    yield from event()
        finally:
            self._pool.streams.remove(self._events)
            for share in self._shares.values():
                share.end(now=True)

    def _join_all(self) -> None:
        """Add new replicas, and stop giving items to leaving ones."""
        for share in self._shares.values():
            if share.replica.leaving:
                share.end(now=not share.away)
        for replica in self._pool.replicas:
            if replica not in self._shares:
                self._join(replica)

    def _join(self, replica: Replica) -> None:
        share = self._shares[replica] = _Share[In](replica=replica)
        served = replica.do(partial(self._serve, share))
        served.add_done_callback(
            lambda done: self._events.put(lambda: self._left(share, done.exception()))
        )

    def _serve(self, share: _Share[In]) -> None:
        """Work on one replica's share (a job of its thread)."""
        model = share.replica.model
        while not share.feed.cancelled:
            if (info := model.loaded()) is None:
                continue
            self._events.put(partial(self._loaded, share, info.window))
            for result in model.stream(share.feed, self._work, shared=True):
                self._events.put(partial(self._came, share, result))
            return

    def _hand_out(self) -> float | None:
        """Hand the next item to the replica with the least to do.

        Return the seconds to wait for an event: None if only an event can change anything.
        """
        share = min(
            (share for share in self._shares.values() if share.has_room),
            key=lambda share: share.outstanding,
            default=None,
        )
        if share is None:
            return None
        if (wait_s := self._gathering_s()) > 0:
            return wait_s
        item = self._next_item()
        if item is not None:
            self._away.add(item.key)
            share.give(item)
        elif self._more:
            return POLL_S
        elif self._away:
            return None
        return 0.0

    def _gathering_s(self) -> float:
        """Return how long the loaded replicas still wait for the others."""
        loading = any(not (s.window or s.replica.model.waits) for s in self._shares.values())
        if not loading:
            return 0.0
        if self._gathered is None:
            self._gathered = time.monotonic() + GATHER_S
        return self._gathered - time.monotonic()

    def _next_item(self) -> In | None:
        """Return an item of a replica that gave up, else the caller's next item, if ready."""
        if self._returned:
            return self._returned.popleft()
        if not self._more:
            return None
        try:
            item = take(self._source, wait=not self._away)
        except StopIteration:
            self._more = False
            return None
        if item is not None and item.key in self._away:
            raise ValueError(f"two batches in flight have the key {item.key}")
        return item

    def _next_event(self, timeout_s: float | None) -> Event[Ans] | None:
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _loaded(self, share: _Share[In], window: int) -> Sequence[Result[Ans]]:
        """Note that a replica is loaded and can take work."""
        share.window = window
        return ()

    def _came(self, share: _Share[In], result: Result[Ans]) -> Sequence[Result[Ans]]:
        self._away.remove(result.key)
        share.outstanding -= len(share.away.pop(result.key).requests)
        share.replica.losses = 0
        return (result,)

    def _left(self, share: _Share[In], error: BaseException | None) -> Sequence[Result[Ans]]:
        """Take back the items of a replica that left or gave up, and have it try again."""
        replica = share.replica
        over = replica.leaving and (error is None or isinstance(error, EngineError))
        if not (over or isinstance(error, USELESS)):
            raise error or EngineError(CLOSED)
        del self._shares[replica]
        self._away.difference_update(share.away)
        self._returned.extendleft(reversed([*share.away.values()]))
        if isinstance(error, USELESS) and self._pool.is_kept(replica, error):
            self._join(replica)
        return ()
