"""A running stage: its owed units, and when they may begin."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ...stores.journal_reader import Unit
from ...stores.schemas import RowsByType
from .flow import Flow
from .handles import Planned
from .reporter import Advance


def _nothing_unread(_: Unit) -> bool:
    return False


@dataclass(kw_only=True)
class Stage:
    """A planned stage, and its owed units.

    `waits` returns whether a unit reads uncommitted rows; the stage is to `rest` while none of
    its requests is in flight. If `commit` does not make a unit durable, but the commit of its
    whole does (`commits_later`), all replies are kept until then.
    """

    planned: Planned
    owed: Sequence[Unit]
    commit: Callable[[Unit, RowsByType, Advance], None]
    flow: Flow
    waits: Callable[[Unit], bool] = _nothing_unread
    rest: Callable[[], AbstractContextManager[None]] = nullcontext
    commits_later: bool = False

    def units(self) -> Iterator[Unit]:
        """Yield the owed units in order, each when it may begin.

        Raises:
            Stopped: after a request to stop, or if another stage has failed.
        """
        for unit in self.owed:
            self.flow.admit()
            if self.waits(unit):
                self._await(unit)
            yield unit

    def _await(self, unit: Unit) -> None:
        with self.rest():
            while self.waits(unit):
                self.flow.wait()
                self.flow.admit()
