"""The stages that are paid at one time, each in a thread of its own.

The main thread runs the recipe: a verb plans its stage there and hands its payment over. A stage
begins when the places it needs are free, in the recipe's order; a unit begins when what it reads is
committed. What asks no model is paid in the main thread, under the same rules.

The first error of any stage keeps all others from beginning units. What is in flight is finished,
as after a stop, and then the main thread raises the error.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ...stores.journal_reader import Unit
from ...stores.lake import OwedAgainError, RunWriter
from .handles import Planned
from .stage_places import HERE, Places
from .stop import Stopped, StopSignal

TURN_S = 0.05
"""The longest wait in one go: signals are handled in between, and engines are polled."""
CLOSE_S = 5.0
"""How long a payment may take to end once its engine is closed."""

logger = logging.getLogger("lpfloop.loop")


@dataclass(kw_only=True, eq=False)
class Ongoing:
    """A stage that is being paid; `open` are its units that are not durable yet.

    `tell` is told of each that becomes durable.
    """

    planned: Planned
    places: Places
    open: set[str]
    tell: Callable[[str], None]


@dataclass(kw_only=True)
class Flow:
    """What is being paid, and whether more may begin; `break_off` ends whatever engines do.

    `limit_reached` returns the error of a limit that ends the run whatever is under way, or None.
    `changed` is notified whenever something has become durable, or a stage has ended.
    The methods may be called from any thread, but those that begin stages, or wait for their end,
    from the main thread alone.
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
    _paying: threading.local = field(default_factory=threading.local, init=False)

    def __post_init__(self) -> None:
        self.store.on_settled = self._settled

    def __enter__(self) -> Self:
        """Pay stages; leaving waits for all of them."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until every stage has ended; after an error, let none begin another unit.

        Raises:
            Exception: what ended a stage, unless something else is on its way out already.
        """
        if error is None:
            self.settle()
            return
        self._note(error)
        told = self._drained(patient=isinstance(error, OwedAgainError))
        if told is not error and type(error) is Stopped:
            raise told from None

    @property
    def ended(self) -> bool:
        """Whether no unit may begin any more."""
        if self._error is None and (reached := self.limit_reached()) is not None:
            self._note(reached)
        return self.stop.requested or self._error is not None

    @property
    def broken(self) -> bool:
        """Whether what is in flight is not waited for any more."""
        return self._broken

    def raise_error(self) -> None:
        """Raise what ended a stage, if something did.

        Raises:
            Exception: in the main thread, the first error; nothing is in flight any more then.
            Stopped: in any other one.
        """
        if self._error is not None:
            if getattr(self._paying, "is_payment", False):
                raise Stopped
            raise self._drained(patient=isinstance(self._error, OwedAgainError))

    def check(self) -> None:
        """Raise as `raise_error` does, or `Stopped` if a stop was asked for."""
        if self.ended:
            self.raise_error()
            self.stop.check()

    def admit(self) -> None:
        """Let a unit begin: wait while paused, and raise as `check` does."""
        while self.stop.paused and not self.ended:
            time.sleep(TURN_S)
        self.check()

    def wait(self) -> None:
        """Wait until something has been committed or has ended, for a moment at most."""
        with self.changed:
            self.changed.wait(TURN_S)

    def report(self, told: Callable[[], None]) -> None:
        """Tell the reporter something, one thread at a time."""
        with self.changed:
            told()

    def pay(
        self,
        planned: Planned,
        owed: Sequence[Unit],
        places: Places,
        tell: Callable[[str], None],
        body: Callable[[], None],
    ) -> None:
        """Have a stage paid by `body`, once its places are free: here, or in a thread of its own.

        Raises:
            Exception: as `check` does, and what ends `body` if it runs here.
        """
        self._until(lambda: not any(stage.places & places - {HERE} for stage in self._ongoing))
        stage = Ongoing(planned=planned, places=places, open={unit.key for unit in owed}, tell=tell)
        with self.changed:
            self._ongoing.append(stage)
            self._stage_of.update(dict.fromkeys(stage.open, stage))
        if HERE in places:
            try:
                body()
            finally:
                self._left(stage)
            return
        name = f"stage {planned.stage}"
        threading.Thread(target=self._run, args=(stage, body), name=name, daemon=True).start()

    def unread(
        self, upstream: Collection[str], reads: Callable[[], Sequence[Sequence[str]]]
    ) -> Callable[[Unit], bool]:
        """Return whether a unit has to wait, for one of the units that it reads is not committed.

        `upstream` are the stages that are read, by identity, and `reads` gives for each unit the
        keys of those that it reads. If these name none of a stage, the whole stage is waited for.
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
        """Wait until a unit is committed, unless no stage that is being paid owes it.

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
        wanted = {stage.identity for stage in stages}
        self._until(
            lambda: not any(s.planned.identity in wanted or not wanted for s in self._ongoing)
        )
        self.raise_error()

    def _until(self, reached: Callable[[], bool]) -> None:
        while not self._turned(reached):
            self.check()

    def _turned(self, reached: Callable[[], bool]) -> bool:
        """Wait for a moment, unless it is reached already; say whether it is."""
        with self.changed:
            return reached() or (self.changed.wait(TURN_S) and reached())

    def _run(self, stage: Ongoing, body: Callable[[], None]) -> None:
        self._paying.is_payment = True
        try:
            body()
        except BaseException as error:  # noqa: BLE001 -- the main thread raises it
            self._note(error)
        finally:
            self._left(stage)

    def _note(self, error: BaseException) -> None:
        """Keep the first error; a plain stop gives way to what ends the run for a reason."""
        with self.changed:
            if self._error is None or type(self._error) is Stopped:
                self._error = error

    def _left(self, stage: Ongoing) -> None:
        with self.changed:
            if stage in self._ongoing:
                self._ongoing.remove(stage)
            for key in stage.open:
                self._stage_of.pop(key, None)
            self.changed.notify_all()

    def _settled(self, keys: Sequence[str]) -> None:
        with self.changed:
            for key in keys:
                stage = self._stage_of.pop(key, None)
                if stage is not None:
                    stage.open.discard(key)
                    stage.tell(key)
            self.changed.notify_all()

    def _drained(self, *, patient: bool) -> BaseException:
        """Wait until nothing is in flight, then return the error that ended it, and forget it.

        What lasts longer than a stop may is broken off. Where the run goes on afterwards, which
        needs all stages to be over, it is waited for `patient`ly.
        """
        error = self._error
        if error is None:
            raise RuntimeError("nothing has ended the stages that are being paid")
        if isinstance(error, Exception):
            self._await_ends(time.monotonic() + self.stop.left_s)
        if self._elsewhere:
            self._broken = True
            self.break_off()
            self._await_ends(None if patient else time.monotonic() + CLOSE_S)
        for stage in self._elsewhere:
            logger.warning("%s was left while it was being paid", stage.planned.stage)
            self._left(stage)
            self._abandoned = True
        self._error, self._broken = None, self._abandoned
        return error

    @property
    def _elsewhere(self) -> list[Ongoing]:
        """The stages in threads of their own: what the main thread pays waits for them, too."""
        return [stage for stage in self._ongoing if HERE not in stage.places]

    def _await_ends(self, limit: float | None) -> None:
        with self.changed:
            while self._elsewhere and (limit is None or time.monotonic() < limit):
                self.changed.wait(TURN_S)
