"""Stages with their pending units, and the stages that run at the same time in separate threads.

The main thread runs the recipe: a verb plans its stage there and hands its work over. A stage
begins when the places it needs are free, in the recipe's order; a unit begins when its input rows
are committed. Stages without a model run in the main thread, under the same rules.

The first error of any stage keeps all others from beginning units. Requests in flight are finished,
as after a stop, and then the main thread raises the error.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ...stores.journal_reader import Unit
from ...stores.lake import PendingAgainError, RunWriter
from ...stores.schemas import RowsByType
from .device_inventory import HERE, Places
from .handles import Planned
from .reporter import UnitStats
from .stop import Stopped, StopSignal

TURN_S = 0.05
"""The longest single wait: signals are handled and engines are polled in between."""
CLOSE_S = 5.0
"""How long a stage may take to end once its engine is closed."""

logger = logging.getLogger("lpfloop.loop")


@dataclass(kw_only=True, eq=False)
class Ongoing:
    """A stage at work; `open` are its units that are not durable yet.

    `tell` is called with each unit that becomes durable.
    """

    planned: Planned
    places: Places
    open: set[str]
    tell: Callable[[str], None]


@dataclass(kw_only=True)
class StageScheduler:
    """The stages at work, and whether more may begin; `break_off` ends the work of all engines.

    `limit_reached` returns the error of a limit that ends the run at once, or None.
    `changed` is notified whenever a unit has become durable, or a stage has ended.
    The methods may be called from any thread, except those that begin stages or wait for their
    end: these are for the main thread only.
    """

    store: RunWriter
    stop: StopSignal
    break_off: Callable[[], None]
    limit_reached: Callable[[], BaseException | None] = lambda: None
    changed: threading.Condition = field(default_factory=threading.Condition)
    _ongoing: list[Ongoing] = field(default_factory=list[Ongoing], init=False)
    _stage_of: dict[str, Ongoing] = field(default_factory=dict[str, Ongoing], init=False)
    _error: BaseException | None = field(default=None, init=False)
    _broken: bool = field(default=False, init=False)
    _abandoned: bool = field(default=False, init=False)
    _thread: threading.local = field(default_factory=threading.local, init=False)

    def __post_init__(self) -> None:
        self.store.on_settled = self._settle

    def __enter__(self) -> Self:
        """Begin to run stages; leaving waits for all of them."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until every stage has ended; after an error, no further unit begins.

        Raises:
            Exception: the error that ended a stage, unless another exception is already raised.
        """
        if error is None:
            self.settle()
            return
        self._note(error)
        drained = self._drain(patient=isinstance(error, PendingAgainError))
        if drained is not error and type(error) is Stopped:
            raise drained from None

    @property
    def ended(self) -> bool:
        """Whether no further unit may begin."""
        if self._error is None and (reached := self.limit_reached()) is not None:
            self._note(reached)
        return self.stop.requested or self._error is not None

    @property
    def broken(self) -> bool:
        """Whether requests in flight are abandoned."""
        return self._broken

    def raise_error(self) -> None:
        """Raise the error that ended a stage, if any.

        Raises:
            Exception: in the main thread, the first error; nothing is in flight any more then.
            Stopped: in any other thread.
        """
        if self._error is not None:
            if getattr(self._thread, "runs_stage", False):
                raise Stopped
            raise self._drain(patient=isinstance(self._error, PendingAgainError))

    def check(self) -> None:
        """Raise as `raise_error` does, or `Stopped` after a request to stop."""
        if self.ended:
            self.raise_error()
            self.stop.check()

    def admit(self) -> None:
        """Wait while the run is paused, and raise as `check` does; then a unit may begin."""
        while self.stop.paused and not self.ended:
            time.sleep(TURN_S)
        self.check()

    def wait(self) -> None:
        """Wait until a unit is committed or a stage ends, for a moment at most."""
        with self.changed:
            self.changed.wait(TURN_S)

    def report(self, callback: Callable[[], None]) -> None:
        """Call the reporter, one thread at a time."""
        with self.changed:
            callback()

    def run_stage(
        self,
        planned: Planned,
        pending: Sequence[Unit],
        places: Places,
        tell: Callable[[str], None],
        body: Callable[[], None],
    ) -> None:
        """Run a stage's `body`, once its places are free: here, or in a new thread.

        Raises:
            Exception: as `check` does, and the error of `body` if it runs here.
        """
        self._until(lambda: not any(stage.places & places - {HERE} for stage in self._ongoing))
        stage = Ongoing(
            planned=planned, places=places, open={unit.key for unit in pending}, tell=tell
        )
        with self.changed:
            self._ongoing.append(stage)
            self._stage_of.update(dict.fromkeys(stage.open, stage))
        if HERE in places:
            try:
                body()
            finally:
                self._leave(stage)
            return
        name = f"stage {planned.stage}"
        threading.Thread(target=self._run, args=(stage, body), name=name, daemon=True).start()

    def unread(
        self, upstream: Collection[str], reads: Callable[[], Sequence[Sequence[str]]]
    ) -> Callable[[Unit], bool]:
        """Return whether a unit has to wait, because a unit that it reads is not committed.

        `upstream` are the identities of the stages that it reads, and `reads` gives for each unit
        the keys of the units that it reads. If these include none of a stage, the unit waits for
        the whole stage.
        """
        with self.changed:
            stages = [s for s in self._ongoing if s.planned.identity in upstream and s.open]
        if not stages:
            return lambda _: False
        named = [frozenset(keys) for keys in reads()]
        every = frozenset[str]().union(*named)
        by_unit = [s for s in stages if every.intersection(s.planned.keys(self.store.journal))]
        whole = [s for s in stages if s not in by_unit]

        def waits(unit: Unit) -> bool:
            keys = named[unit.chunk]
            return any(s.open for s in whole) or any(
                key in s.open for s in by_unit if s.open for key in keys
            )

        return waits

    def await_unit(self, key: str) -> None:
        """Wait until a unit is committed, unless no running stage will commit it.

        Raises:
            Exception: as `check` does.
        """
        stage = self._stage_of.get(key)
        if stage is not None:
            self._until(lambda: key not in stage.open)

    def settle(self, *stages: Planned) -> None:
        """Wait until these stages have ended, or all.

        Raises:
            Exception: as `check` does.
        """
        identities = {stage.identity for stage in stages}
        self._until(
            lambda: (
                not any(s.planned.identity in identities or not identities for s in self._ongoing)
            )
        )
        self.raise_error()

    def _until(self, reached: Callable[[], bool]) -> None:
        while True:
            with self.changed:
                if reached() or (self.changed.wait(TURN_S) and reached()):
                    return
            self.check()

    def _run(self, stage: Ongoing, body: Callable[[], None]) -> None:
        self._thread.runs_stage = True
        try:
            body()
        except BaseException as error:  # noqa: BLE001 -- the main thread raises it
            self._note(error)
        finally:
            self._leave(stage)

    def _note(self, error: BaseException) -> None:
        """Keep the first error; an error with a reason replaces a plain stop."""
        with self.changed:
            if self._error is None or type(self._error) is Stopped:
                self._error = error

    def _leave(self, stage: Ongoing) -> None:
        with self.changed:
            if stage in self._ongoing:
                self._ongoing.remove(stage)
            for key in stage.open:
                self._stage_of.pop(key, None)
            self.changed.notify_all()

    def _settle(self, keys: Sequence[str]) -> None:
        with self.changed:
            for key in keys:
                stage = self._stage_of.pop(key, None)
                if stage is not None:
                    stage.open.discard(key)
                    stage.tell(key)
            self.changed.notify_all()

    def _drain(self, *, patient: bool) -> BaseException:
        """Wait until nothing is in flight, then return the error that ended it, and forget it.

        Work that takes longer than a stop may is broken off. With `patient`, the run goes on
        afterwards and needs all stages to be over, so this waits without a limit.
        """
        error = self._error
        if error is None:
            raise RuntimeError("nothing has ended the stages that are running")
        if isinstance(error, Exception):
            self._await_ends(time.monotonic() + self.stop.left_s)
        if self._elsewhere:
            self._broken = True
            self.break_off()
            self._await_ends(None if patient else time.monotonic() + CLOSE_S)
        for stage in self._elsewhere:
            logger.warning("%s was left while it was running", stage.planned.stage)
            self._leave(stage)
            self._abandoned = True
        self._error, self._broken = None, self._abandoned
        return error

    @property
    def _elsewhere(self) -> list[Ongoing]:
        """The stages in other threads, which the main thread must wait for."""
        return [stage for stage in self._ongoing if HERE not in stage.places]

    def _await_ends(self, limit: float | None) -> None:
        with self.changed:
            while self._elsewhere and (limit is None or time.monotonic() < limit):
                self.changed.wait(TURN_S)


@dataclass(kw_only=True)
class Stage:
    """A planned stage, and its pending units.

    `waits` returns whether a unit reads uncommitted rows; the stage is to `rest` while none of
    its requests is in flight. If `commit` does not make a unit durable, but the commit of its
    whole does (`commits_later`), all replies are kept until then.
    """

    planned: Planned
    pending: Sequence[Unit]
    commit: Callable[[Unit, RowsByType, UnitStats], None]
    flow: StageScheduler
    waits: Callable[[Unit], bool] = lambda _: False
    rest: Callable[[], AbstractContextManager[None]] = nullcontext
    commits_later: bool = False

    def units(self) -> Iterator[Unit]:
        """Yield the pending units in order, each when it may begin.

        Raises:
            Stopped: after a request to stop, or if another stage has failed.
        """
        for unit in self.pending:
            self.flow.admit()
            if self.waits(unit):
                with self.rest():
                    while self.waits(unit):
                        self.flow.wait()
                        self.flow.admit()
            yield unit


class WallTime:
    """Measures how much of the time of several stages was counted for more than one of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._running = 0
        self._since = 0.0
        self._twice = 0.0
        self._busy = 0.0

    def elapsed(self) -> float:
        """Return the seconds in which stages were at work, those until now included."""
        with self._mutex:
            return self._busy + (self._clock() - self._since if self._running else 0.0)

    def change(self, by: int) -> float:
        """Note that `by` more stages are at work; return the time."""
        with self._mutex:
            now = self._clock()
            self._twice += max(0, self._running - 1) * (now - self._since)
            self._busy += now - self._since if self._running else 0.0
            self._running += by
            self._since = now
        return now

    def taken_twice(self) -> float:
        """Return the seconds counted for several stages since the last call."""
        with self._mutex:
            twice, self._twice = self._twice, 0.0
        return twice


class StageTime:
    """The time of one stage, without its waiting for the rows of another."""

    def __init__(self, wall: WallTime) -> None:
        self._wall = wall
        self._began = 0.0
        self._rested = 0.0

    def begin(self) -> None:
        """Note that the stage begins."""
        self._began = self._wall.change(1)

    @contextmanager
    def rest(self) -> Generator[None]:
        """Exclude the time in the block, in which the stage waits for another."""
        left = self._wall.change(-1)
        try:
            yield
        finally:
            self._rested += self._wall.change(1) - left

    def end(self) -> tuple[float, float]:
        """Return its seconds, and the seconds also counted for others since a stage last ended."""
        ended = self._wall.change(-1)
        return ended - self._began - self._rested, self._wall.taken_twice()
