"""The traffic to endpoints: one queue, from which each takes what it will answer soonest.

Each endpoint has slots of its own, so a slow one keeps no fast one from working. A request goes to
the open gate that has room and the fewest requests under way for its rate. Where it failed, it is
not sent again while another gate is open. While no gate is open, requests wait and only their
patience runs. No request is ever under way twice.

The last requests of a stage are not given to an endpoint that would take longer to answer one than
the faster ones take for all that still wait.

Everything runs on one event loop and uses its clock.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

from ..engines.engine import EngineError
from .faults import RefusedError, TemporaryError
from .gate import SLACK_S, Gate, Passage
from .ranking import Ranking
from .retry import Errand, Patience, Trial

T = TypeVar("T")

LOOK = 16
"""How many requests that wait for another gate than the free one are passed over."""
PROBATION_S = 2.0
"""How long a request on trial is expected to take: longer than one at an endpoint that answers."""
LEAST_AHEAD = 64
MOST_AHEAD = 16
"""At most so many times the slots are kept waiting."""
SPARE = 4
"""For so many slots one request more waits; and so many times as many may be without an answer."""
SLOWER = 2.0
"""An endpoint is slow that takes so many times as long as the quickest."""


class Traffic:
    """The gates of an engine's endpoints, and the queue of what is asked.

    `ahead` is how many requests should wait in the queue, so that no endpoint waits for them and
    it can be told whether the slower ones are needed. Read from other threads, too.
    """

    def __init__(self, urls: Iterable[str], concurrency: int) -> None:
        self.answers = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self._gates = [Gate(place, url, concurrency, concurrency) for place, url in enumerate(urls)]
        self._ranking = Ranking(self._gates)
        self._closed = set[Gate]()
        self._next_opening = math.inf
        self._open_s, self._open_since = 0.0, 0.0
        self._queue: deque[Trial[Any]] = deque()
        self._is_due = False
        self._alarm: asyncio.TimerHandle | None = None
        self._stopped: str | None = None
        for gate in self._gates:
            self._ranking.note(gate, is_open=True)
        self._quickest_s = math.inf
        self.ahead = len(self._gates)

    @property
    def most_unanswered(self) -> int:
        """How many requests may be without an answer before no more are taken in."""
        return self.ahead + SPARE * sum(gate.most for gate in self._gates)

    def resize(self, concurrency: int) -> None:
        """Change how many requests may be under way at each endpoint."""
        for gate in self._gates:
            gate.resize(concurrency)
            self._note(gate)
        self._survey()
        self._dispatch()

    def ask(self, errand: Errand[T], patience_s: float) -> asyncio.Future[T]:
        """Let an errand wait for a gate; its result may be cancelled at any time.

        The result raises EngineError when patience ends first, or the engine was stopped.
        """
        trial = Trial(errand, patience_s, self.answers)
        self._join(trial)
        return trial.result

    def stop(self, error: EngineError) -> None:
        """Admit no more requests; those that wait get the error."""
        self._stopped = self._stopped or str(error)
        self._dispatch()

    def prove(self, passage: Passage) -> None:
        """Note that an endpoint answers: all requests may pass."""
        passage.gate.prove()
        self._note(passage.gate)
        self._survey()
        self._dispatch_soon()

    def _join(self, trial: Trial[Any]) -> None:
        """Let a request wait; one that was under way before stands ahead of the others."""
        trial.joined = self._open_clock()
        trial.waits_for = None
        if trial.begun:
            self._queue.appendleft(trial)
        else:
            self._queue.append(trial)
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Send what can be sent."""
        self._is_due = False
        if self._stopped is not None:
            while self._queue:
                self._queue.popleft().fail(EngineError(self._stopped))
        self._open_gates()
        passed_over: list[Trial[Any]] = []
        spared: list[Gate] = []
        while self._queue and len(passed_over) < LOOK:
            trial = self._queue.popleft()
            if trial.result.done():
                continue
            while (gate := self._gate_for(trial)) is not None and self._is_too_slow(gate):
                self._ranking.note(gate, is_open=False)
                spared.append(gate)
            if gate is not None:
                self._begin(trial, gate)
                continue
            passed_over.append(trial)
            if trial.avoids is None:
                break
        self._queue.extendleft(reversed(passed_over))
        for gate in spared:
            self._note(gate)
        self._watch()

    def _gate_for(self, trial: Trial[Any]) -> Gate | None:
        """Return where a request goes: not to where it failed, if another gate is open."""
        gate = self._ranking.first(avoiding=trial.avoids)
        others = len(self._gates) - len(self._closed) - 1
        if gate is None and trial.avoids is not None and others <= 0:
            return self._ranking.first()
        return gate

    def _is_too_slow(self, gate: Gate) -> bool:
        """Whether all that waits is sooner answered by gates that are faster than this one."""
        needed = gate.latency_s if gate.proven else PROBATION_S
        if needed is None or needed <= self._quickest_s or len(self._queue) >= self.ahead // 2:
            return False
        faster = [g for g in self._busy() if g is not gate and (g.latency_s or needed) < needed]
        if not faster:
            return False
        by_others = min(g.latency_s or 0.0 for g in faster)
        by_others += len(self._queue) / sum(g.rate for g in faster)
        return needed > by_others

    def _busy(self) -> list[Gate]:
        """Return the open gates whose answers are awaited."""
        return [
            gate
            for gate in self._gates
            if gate.proven and gate.under_way and gate.latency_s and gate not in self._closed
        ]

    def _begin(self, trial: Trial[Any], gate: Gate) -> None:
        loop = asyncio.get_running_loop()
        trial.patience.queued += self._open_clock() - trial.joined
        gate.under_way += 1
        passage = Passage(gate, loop.time(), on_trial=not gate.proven)
        if passage.on_trial:
            gate.trier = passage
        self._note(gate)
        task = trial.waits_for = loop.create_task(trial.errand.attempt(passage))
        self.tasks.add(task)
        task.add_done_callback(partial(self._ended, trial, passage))
        if not trial.begun:
            trial.begun = True
            trial.errand.begun()

    def _ended(self, trial: Trial[T], passage: Passage, task: asyncio.Task[T]) -> None:
        """Learn from how an attempt ended, settle it or have it tried again."""
        gate, now = passage.gate, asyncio.get_running_loop().time()
        self.tasks.discard(task)
        gate.under_way -= 1
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, TemporaryError):
            gate.failed(passage, fault, now)
            self._again(trial, gate, fault)
        elif isinstance(fault, RefusedError):
            gate.prove()
            trial.refuse(fault)
        elif fault is not None:
            if isinstance(fault, EngineError):
                self.stop(fault)
            trial.fail(fault)
        elif not task.cancelled():
            gate.answered(passage, now)
            self.answers += 1
            trial.give(task.result())
        if gate.trier is passage:
            gate.trier = None
        self._note(gate)
        if self.answers % len(self._gates) == 0 or passage.on_trial:
            self._survey()
        self._dispatch_soon()

    def _again(self, trial: Trial[Any], gate: Gate, fault: TemporaryError) -> None:
        """Try again after a pause, unless the request is at fault or its patience ends before."""
        if trial.result.done():
            return
        loop = asyncio.get_running_loop()
        pause = trial.pause_after(fault)
        if trial.is_guilty(self.answers):
            trial.refuse(trial.given_up(fault))
        elif pause > trial.patience.left(loop.time()):
            trial.fail(self._out_of_patience(trial.patience))
        elif pause:
            trial.avoids = gate
            trial.waits_for = loop.call_later(pause, self._join, trial)
        else:
            self._join(trial)

    def _note(self, gate: Gate) -> None:
        """Take in a change of a gate."""
        now = asyncio.get_running_loop().time()
        is_open = gate.is_open(now)
        if not is_open or gate in self._closed:
            self._count_open_time(now)
            (self._closed.discard if is_open else self._closed.add)(gate)
            openings = (g.opens_at for g in self._closed if g.trier is None)
            self._next_opening = min(openings, default=math.inf)
        self._ranking.note(gate, is_open=is_open)

    def _open_gates(self) -> None:
        """Open the gates whose time has come."""
        now = asyncio.get_running_loop().time()
        if self._next_opening <= now + SLACK_S:
            for gate in [gate for gate in self._closed if gate.is_open(now)]:
                self._note(gate)

    @property
    def _is_shut(self) -> bool:
        return len(self._closed) == len(self._gates)

    def _open_clock(self) -> float:
        """Return for how long any gate was open so far."""
        now = asyncio.get_running_loop().time()
        return self._open_s + (0.0 if self._is_shut else now - self._open_since)

    def _count_open_time(self, now: float) -> None:
        self._open_s, self._open_since = self._open_clock(), now

    def _watch(self) -> None:
        """Wake up when a gate opens or patience ends; at once where it ends before."""
        until = math.inf
        if self._queue and self._is_shut:
            until = self._end_of_patience()
        at = min(self._next_opening, until) if self._queue else math.inf
        if self._alarm is not None and (self._alarm.when() != at or self._alarm.cancelled()):
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None and at < math.inf:
            self._alarm = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._dispatch()

    def _end_of_patience(self) -> float:
        """Return when the patience of one that waits ends first; fail those that wait in vain.

        A gate that opens too late can still be replaced by a trial that succeeds.
        """
        now, clock = asyncio.get_running_loop().time(), self._open_clock()
        is_tried = any(gate.trier is not None for gate in self._gates)
        first = math.inf
        for trial in self._queue:
            until = now + trial.patience.left(now) + (clock - trial.joined)
            if until <= now or (self._next_opening > until and not is_tried):
                trial.fail(self._out_of_patience(trial.patience))
            else:
                first = min(first, until)
        return first

    def _out_of_patience(self, patience: Patience) -> EngineError:
        """Return the error of a request that was kept waiting too long."""
        reasons = "; ".join(f"{gate.url}: {gate.told}" for gate in self._gates)
        return EngineError(
            f"no endpoint answers within {patience.seconds:g} s (engine.patience_s); nothing is"
            f" lost: resume when they do: {reasons}"
        )

    def _survey(self) -> None:
        """Learn how fast the fastest gate is, and how many requests should wait.

        Some for each slot, so that none is idle; and as many as the fastest gates answer while the
        slowest one answers one, so that it is known whether the slowest one helps.
        """
        usable = [gate for gate in self._gates if gate not in self._closed]
        slots = sum(int(gate.slots) if gate.proven else 1 for gate in usable) or 1
        latencies = [g.latency_s for g in usable if g.proven and g.latency_s is not None]
        self._quickest_s = SLOWER * min(latencies, default=math.inf)
        ahead = min(slots, LEAST_AHEAD + slots // SPARE)
        if latencies:
            longer = max(latencies) - min(latencies)
            ahead += 2 * int(longer * sum(gate.rate for gate in usable if gate.proven))
        self.ahead = min(ahead, MOST_AHEAD * slots)
