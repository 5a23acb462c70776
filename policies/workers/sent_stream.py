"""Sends one stream of batches to a supervised worker, and to its successors when it dies.

The batches in flight at a death are sent again in order with their own seeds; no result is given
twice. A batch that is in flight at a second death starts a search for the request that causes it
(see `poison`): only that request fails. A batch examined request by request is drawn without its
usual neighbours, which may change the last bits of its log-probabilities or scores.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic

from ..engines.feed import POLL_S, arrived, is_cancelled
from . import wire
from .poison import PoisonSearch, good_request
from .supervised import GivenUpError, Supervisor
from .work import In, Out, WorkKind
from .worker import WorkerDeathError
from .worker_line import WAIT_S, WorkerLine

logger = logging.getLogger("lpfloop.worker")

WITHOUT_S = 30.0
"""Seconds that a restarted worker may wait for a node before others take what was in flight."""


class SentStream(Generic[In, Out]):
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
        self._line: WorkerLine | None = None
        self._without: float | None = None

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
        if line is None:
            return ()
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
        if line is None:
            return ()
        asked = search.ask(last_chance=self._supervisor.last_chance)
        if asked is None:
            death = line.worker.hung("nothing else could be answered")
            raise self._supervisor.surrender(death)
        line.send({"op": "item", **self._work.encode(asked)})
        while (frame := line.receive(WAIT_S)) is None:
            if is_cancelled(self._source):
                return ()
        self._supervisor.progressed()
        whole = list(search.answered(self._work.decode(frame)))
        self._supervisor.good[self._work.task] = search.good
        for result in whole:
            del self._flight[result.key]
        if search.over:
            self._search = None
        return whole

    def _connected(self) -> WorkerLine | None:
        """Return the line to a worker; to a new one, send again what is in flight.

        None: there is no worker yet.

        Raises:
            GivenUpError: if no node has room for one.
        """
        if self._line is None:
            found = self._supervisor.loaded(WAIT_S)
            if found is None:
                self._require_node()
                return None
            self._without = None
            worker, info = found
            self._line = self._supervisor.line(worker, info.window, self._work)
            if self._search is None:
                for item in self._flight.values():
                    self._line.send({"op": "item", **self._work.encode(item)})
        return self._line

    def _require_node(self) -> None:
        now = time.monotonic()
        self._without = (self._without or now) if self._supervisor.waits else None
        if self._flight and self._without is not None and now - self._without > WITHOUT_S:
            raise GivenUpError(f"no node has had room for its worker for {WITHOUT_S:.0f} s")

    def _send_next(self, line: WorkerLine) -> None:
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
