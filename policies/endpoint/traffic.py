"""The traffic to endpoints: one queue, from which each takes what it will answer soonest.

Each endpoint has slots of its own, so a slow one keeps no fast one from working. A request goes to
the open gate that has room and the fewest requests under way for its rate. Where it failed, it is
not sent again while another gate is open. While no gate is open, requests wait and only their
patience runs. No request is ever under way twice.

The last requests of a stage are not given to an endpoint that would take longer to answer one than
the faster ones take for all that still wait.

An endpoint's `pace` may let nothing go for a while: it is open, and others are used meanwhile.

Everything runs on one event loop and uses its clock.
"""

import asyncio
import itertools
import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from ..engines.engine import EngineError
from .faults import RefusedError, TemporaryError
from .gate import Gate, Passage
from .openings import Openings
from .pace import PaceBooking, RequestPace
from .paced_gates import PacedGates
from .ranking import Ranking
from .retry import SUSPICIOUS, Errand, Patience, Trial

T = TypeVar("T")

LOOK = 16
"""How many requests that wait for another gate than the free one are passed over."""
PROBATION_S = 2.0
"""How long a request on trial is expected to take: longer than one at an endpoint that answers."""
LEAST_AHEAD = 64
MOST_AHEAD = 32
"""At most so many times the slots are kept waiting."""
SPARE = 4
"""For so many slots one request more waits."""
AT_HAND = 2
"""So many times the slots are asked and not given back, besides the batch that goes beyond."""
UNANSWERED = 4
"""At most so many times the slots are without an answer, those that wait to be tried again too."""
SLOWER = 2.0
"""An endpoint is slow that takes so many times as long as the quickest."""
STRANGE_REPLIES, STRANGE_S = 7, 15.0
"""After so many unreadable replies, over so long, and no other one, a short question is asked; if
its reply cannot be read either, nothing that speaks the protocol listens there.
"""

logger = logging.getLogger("lpfloop.endpoint")


class Traffic:
    """The gates of an engine's endpoints, and the queue of what is asked.

    `ahead` is how many requests should wait in the queue, so that no endpoint waits for them and
    it can be told whether the slower ones are needed; `most` is how many may be without an answer
    besides. Both are read from other threads, too. `at_hand` is how many may be asked before their
    batches are given back, as what was answered until then is lost with the process.
    """

    def __init__(
        self, urls: Iterable[str], concurrency: int, paces: Sequence[RequestPace] | None = None
    ) -> None:
        self.answers = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self._concurrency = concurrency
        self._gates: list[Gate] = []
        self._places = itertools.count()
        self._ranking = Ranking()
        self._open = Openings()
        self._queue: deque[Trial[Any]] = deque()
        self._is_due = False
        self._alarm: asyncio.TimerHandle | None = None
        self._stopped: str | None = None
        self._spared: list[Gate] = []
        self.paced = PacedGates(self._gates)
        self._enough = math.inf
        self._unreadable, self._unreadable_since = 0, math.inf
        self._warned = -1
        self._quickest_s, self._rate = math.inf, 0.0
        for url, pace in itertools.zip_longest(urls, paces or ()):
            self._add(url, pace or RequestPace())
        self.ahead = len(self._gates)
        self._bound()
        self.at_hand = self._least_at_hand

    @property
    def gates(self) -> Sequence[Gate]:
        """The gates of the endpoints that are asked."""
        return self._gates

    def resize(self, concurrency: int) -> None:
        """Change how many requests may be under way at each endpoint."""
        self._concurrency = concurrency
        self._bound()
        for gate in self._gates:
            gate.resize(concurrency)
            self._note(gate)
        self._survey()
        self._dispatch()

    def _add(self, url: str, pace: RequestPace) -> None:
        most = self._concurrency
        gate = Gate(next(self._places), url, most, most, pace=pace)
        self._gates.append(gate)
        self._open.join(0.0)
        self._ranking.note(gate, is_open=True)

    def _bound(self) -> None:
        """Set how much may be asked and not answered, and not given back, by the slots of all."""
        slots = self._concurrency * len(self._gates)
        self.most, self._least_at_hand = UNANSWERED * slots, AT_HAND * slots

    def ask(self, errand: Errand[T], patience_s: float) -> asyncio.Future[T]:
        """Let an errand wait for a gate; its result may be cancelled at any time.

        The result raises EngineError when patience ends first, or the engine was stopped.
        """
        trial = Trial(errand, patience_s, self.answers)
        self._join(trial)
        return trial.result

    def limit(self, requests: int | None, tokens: int | None) -> None:
        """Change how many requests and tokens may go to each endpoint in a minute."""
        self.paced.limit(requests, tokens)
        for gate in self._gates:
            self._note(gate)
        self._dispatch_soon()

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
        trial.joined = self._open.clock(self._now)
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
        for gate in (*self._open.due(self._now), *self.paced.due(self._now)):
            self._note(gate)
        if len(self._queue) >= self._enough:
            self._use_spared()
        passed_over: list[Trial[Any]] = []
        while self._queue and len(passed_over) < LOOK:
            trial = self._queue[0]
            let = None if trial.result.done() else self._let_go(trial)
            self._queue.popleft()
            if let is not None:
                self._begin(trial, *let)
            elif not trial.result.done():
                passed_over.append(trial)
                if trial.avoids is None:
                    break
        self._queue.extendleft(reversed(passed_over))
        self._watch()

    def _let_go(self, trial: Trial[Any]) -> tuple[Gate, PaceBooking] | None:
        """Return where a request goes now, and as what it counts there; None if it has to wait."""
        while (gate := self._gate_for(trial)) is not None:
            if len(self._queue) < (backlog := self._backlog_for(gate)):
                self._spare(gate, backlog)
                continue
            booked = self.paced.book(gate, trial.errand.tokens, self._now)
            if booked is not None:
                return gate, booked
            self._note(gate)
        return None

    def _gate_for(self, trial: Trial[Any]) -> Gate | None:
        """Return where a request goes: not to where it failed, if another gate is open."""
        gate = self._ranking.first(avoiding=trial.avoids)
        if gate is None and trial.avoids is not None and self._open.count <= 1:
            return self._ranking.first()
        return gate

    def _backlog_for(self, gate: Gate) -> float:
        """Return how many requests must wait for a gate to be of use.

        With fewer, the faster gates will have answered them all before this one answers.
        """
        needed = gate.latency_s if gate.proven else PROBATION_S
        if needed is None or needed <= SLOWER * self._quickest_s:
            return 0.0
        by_others = (needed - self._quickest_s) * (self._rate - gate.rate)
        # Not so many may ever wait.
        return min(by_others, self.ahead / 2)

    def _spare(self, gate: Gate, backlog: float) -> None:
        """Leave out a gate until so many requests wait."""
        self._ranking.note(gate, is_open=False)
        self._spared.append(gate)
        self._enough = min(self._enough, backlog)

    def _use_spared(self) -> None:
        """Let the gates be used again that were too slow."""
        spared, self._spared, self._enough = self._spared, [], math.inf
        for gate in spared:
            self._note(gate)

    def _begin(self, trial: Trial[Any], gate: Gate, booking: PaceBooking) -> None:
        trial.patience.queued += self._open.clock(self._now) - trial.joined
        gate.under_way += 1
        if gate.used_since is None and gate.proven:
            gate.used_since = self._now
        passage = Passage(gate, self._now, on_trial=not gate.proven, booking=booking)
        if passage.on_trial:
            gate.trier = passage
        self._note(gate)
        check = self._is_strange or trial.is_doubtful(self.answers)
        task = trial.waits_for = asyncio.create_task(trial.attempt(passage, check=check))
        self.tasks.add(task)
        task.add_done_callback(partial(self._ended, trial, passage))
        if not trial.begun:
            trial.begun = True
            trial.errand.begun()

    def _ended(self, trial: Trial[T], passage: Passage, task: asyncio.Task[T]) -> None:
        """Learn from how an attempt ended, settle it or have it tried again."""
        gate, now = passage.gate, self._now
        self.tasks.discard(task)
        gate.under_way -= 1
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, TemporaryError):
            if fault.crowded:
                gate.pace.correct(passage.booking, 0)
            gate.failed(passage, fault, now)
            self._again(trial, gate, fault)
        elif isinstance(fault, RefusedError):
            gate.pace.correct(passage.booking, 0)
            gate.prove()
            trial.refuse(fault)
        elif fault is not None:
            if isinstance(fault, EngineError):
                self.stop(fault)
            trial.fail(fault)
        elif not task.cancelled():
            gate.pace.correct(passage.booking, trial.errand.used(task.result()))
            gate.answered(passage, now)
            self.answers += 1
            trial.give(task.result())
        if gate.trier is passage:
            gate.trier = None
        self._note(gate)
        if self.answers % (len(self._gates) or 1) == 0 or passage.on_trial:
            self._survey()
        self._dispatch_soon()

    @property
    def _is_strange(self) -> bool:
        """Whether no reply could ever be read."""
        lasts = self._now - self._unreadable_since >= STRANGE_S
        return not self.answers and lasts and self._unreadable >= STRANGE_REPLIES

    def _again(self, trial: Trial[Any], gate: Gate, fault: TemporaryError) -> None:
        """Try again after a pause, unless the request is at fault or its patience ends before."""
        self._note_unreadable(trial, fault)
        if trial.result.done():
            return
        pause = trial.pause_after(fault)
        if trial.failures == SUSPICIOUS and self._warned != self.answers:
            self._warned = self.answers
            logger.warning("%s: a request failed %d times: %s", gate.url, SUSPICIOUS, fault)
        if trial.is_guilty(self.answers):
            trial.refuse(trial.given_up(fault))
        elif trial.checks and fault.garbled and self._is_strange:
            error = EngineError(
                f"{gate.url}: {fault}; {self._unreadable} of its replies could not be read, and "
                "none was an answer: correct the address, the key or the account"
            )
            self.stop(error)
            trial.fail(error)
        elif pause > trial.patience.left(self._now):
            trial.fail(self._out_of_patience(trial.patience))
        elif pause:
            trial.avoids = gate
            trial.waits_for = asyncio.get_running_loop().call_later(pause, self._join, trial)
        else:
            self._join(trial)

    def _note_unreadable(self, trial: Trial[Any], fault: TemporaryError) -> None:
        """Count replies that could not be read, since the last answer to a short question."""
        if trial.has_checked:
            self._unreadable, self._unreadable_since = 0, math.inf
        if fault.garbled:
            self._unreadable += 1
            self._unreadable_since = min(self._unreadable_since, self._now)

    def _note(self, gate: Gate) -> None:
        """Take in a change of a gate."""
        was_open = gate in self._open
        is_open = self._open.note(gate, self._now)
        self._ranking.note(gate, is_open=is_open and gate not in self.paced)
        if was_open and not is_open:
            self._survey()

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _watch(self) -> None:
        """Wake up when a gate opens or patience ends; at once where it ends before."""
        if not self._queue:
            self.paced.stand_back()
        until = math.inf
        if self._queue and not self._open.count:
            until = self._end_of_patience()
        at = min(self._open.next, self.paced.next, until) if self._queue else math.inf
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
        now, clock = self._now, self._open.clock(self._now)
        is_tried = any(gate.trier is not None for gate in self._gates)
        first = math.inf
        waiting, self._queue = self._queue, deque()
        for trial in waiting:
            until = now + trial.patience.left(now) + (clock - trial.joined)
            if until <= now or (self._open.next > until and not is_tried):
                trial.fail(self._out_of_patience(trial.patience))
            elif not trial.result.done():
                self._queue.append(trial)
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
        slowest one answers one, so that it is known whether the slowest one helps. More are at hand
        by as many as are answered during the slowest request, as its batch is not whole so long.
        """
        usable = [gate for gate in self._gates if gate in self._open]
        slots = sum(int(gate.slots) if gate.proven else 1 for gate in usable) or 1
        answering = [gate for gate in usable if gate.proven and gate.rate]
        latencies = [gate.latency_s or math.inf for gate in answering]
        self._quickest_s = min(latencies, default=math.inf)
        self._rate = sum(gate.rate for gate in answering)
        ahead = min(slots, LEAST_AHEAD + slots // SPARE)
        most = MOST_AHEAD * slots
        self.ahead = min(ahead + self._answered_in(max(latencies, default=0.0)), most)
        slowest_s = max((gate.slowness_s(self._now) for gate in usable if gate.proven), default=0.0)
        self.at_hand = self._least_at_hand + min(self._answered_in(slowest_s), most)
        self._use_spared()

    def _answered_in(self, seconds: float) -> int:
        """Return how many are answered, twice over, in what a request takes longer than others."""
        return int(2 * max(seconds - self._quickest_s, 0.0) * self._rate)
