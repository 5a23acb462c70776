"""A running stage: its pending units, and when they may begin."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ...stores.journal_reader import Unit
from ...stores.schemas import RowsByType
from .handles import Planned
from .reporter import UnitStats
from .stage_scheduler import StageScheduler


def _nothing_unread(_: Unit) -> bool:
    return False


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
    waits: Callable[[Unit], bool] = _nothing_unread
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
                self._await(unit)
            yield unit

    def _await(self, unit: Unit) -> None:
        with self.rest():
            while self.waits(unit):
                self.flow.wait()
                self.flow.admit()
