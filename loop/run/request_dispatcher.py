"""One stream of requests to a model: units are cut into slices and committed as answers arrive.

Sampling, rewarding and every kind of judging send the requests of units to a model. Replies that
could not be parsed are requested again in the same stream, so a unit is committed as soon as all
its questions are settled, and never waits for another unit. Until then the journal keeps the
answers to each slice: whoever takes the unit up again, after a stop or a crash, pays only for the
requests that were in flight.

No unit begins while the run is paused, stopping, or out of budget. Among the next few units, those
whose input rows are committed begin first.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from ...policies.engines.engine import Source
from ...stores.journal_reader import Cost, Unit
from .budget import cost_of
from .engine_client import ModelClient
from .reporter import RunWarnings, UnitStats
from .run import Run
from .stage import Stage

LOOKAHEAD = 64
"""How many units are searched for one whose input is committed."""
SLICE = 32
"""Requests that travel together: the most that a stall, a stop or a restarted worker loses."""
Turn = Literal["now", "later", "never"]
"""When another unit can begin; it may be never even though units are pending."""
Place = tuple[int, ...]
"""The position of a question in its unit; its parts take its position, in order."""

Request_co = TypeVar("Request_co", covariant=True)
Answer_contra = TypeVar("Answer_contra", contravariant=True)


class RetryableRequest(Protocol[Request_co, Answer_contra]):
    """A question to a model, with the content of its latest answer: an immutable value."""

    @property
    def settled(self) -> bool:
        """Whether its requests are over: it was answered, or its attempts are used up."""
        ...

    @property
    def attempts(self) -> int:
        """The number of answers so far; above 0, the next request is a repetition."""
        ...

    def request(self) -> Request_co:
        """Return its next request, with a new seed."""
        ...

    def after_answer(self, answer: Answer_contra) -> Sequence[Self]:
        """Return the question after an answer, or its parts, which then get separate requests."""
        ...


Q = TypeVar("Q", bound=RetryableRequest[Any, Any])


@dataclass(kw_only=True)
class _OpenUnit(Generic[Q]):
    """A unit with unsettled questions, and the number of its slices in flight or waiting."""

    unit: Unit
    questions: dict[Place, Q]
    cost: UnitStats = field(default_factory=UnitStats)
    slices: int = 0

    @property
    def unsettled(self) -> list[Place]:
        """The places of questions that need another request."""
        return [place for place, question in self.questions.items() if not question.settled]

    def requests(self, places: Sequence[Place]) -> list[Any]:
        """Return the next requests of questions."""
        return [self.questions[place].request() for place in places]

    def take_answer(self, place: Place, answer: object) -> list[Place]:
        """Take an answer; return the places of questions that need another request."""
        parts = self.questions.pop(place).after_answer(answer)
        places = [place] if len(parts) == 1 else [(*place, n) for n in range(len(parts))]
        self.questions.update(zip(places, parts, strict=True))
        return [p for p in places if not self.questions[p].settled]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice(Generic[Q]):
    """Some requests of a unit, and the places of their questions."""

    key: str
    of: _OpenUnit[Q]
    places: Sequence[Place]
    requests: Sequence[Any]
    again: bool


class RequestDispatcher(Source[Any], Generic[Q]):
    """The batches of a stage's requests, taken by an engine as soon as they may be sent.

    `work` gives a unit's questions when its turn has come; `commit` takes the settled questions
    in their order, with the cost of the answers.
    """

    def __init__(
        self,
        run: Run,
        stage: Stage,
        *,
        client: ModelClient[Any, Any, Any],
        work: Callable[[Unit], Sequence[Q]],
        commit: Callable[[Unit, Sequence[Q], UnitStats], None],
    ) -> None:
        self._stage, self._flow = stage, stage.flow
        self._client, self._work, self._commit_unit = client, work, commit
        self._budget, self._journal = run.budget, run.store.journal
        self._warnings = RunWarnings(run.store, stage.planned.iteration, stage.planned.stage)
        self._units = deque(stage.pending)
        self._following: _OpenUnit[Q] | None = None
        self._admits = True
        self._waiting: deque[_Slice[Q]] = deque()
        self._away: dict[str, _Slice[Q]] = {}
        self._numbers = count()

    def run_units(self) -> None:
        """Send the requests of all pending units, and commit each unit as soon as it is settled."""
        if not self._units or self._turn() == "never":
            return  # Without requests the model need not be loaded.
        for key, answers in self._client.stream(self):
            self._take_answers(key, answers)

    @property
    def stopping(self) -> bool:
        """Whether the run stops; then failed requests are not retried."""
        return self._flow.ended

    def take(self) -> Any:
        """Return the next batch, or None if it has to wait for an answer or for another stage."""
        if not self._ready():
            return None
        with self._budget.deciding:
            # Another stage may have spent from the budget meanwhile.
            return self._next() if self._ready() else None

    def __next__(self) -> Any:
        while (batch := self.take()) is None:
            # An engine waits here only with no request in flight, because it could not take an
            # answer.
            with nullcontext() if self._away else self._stage.rest():
                self._flow.wait()
        return batch

    def _ready(self) -> bool:
        """Whether `_next` would return a batch, or end, without waiting for an answer."""
        if self._ends_now:
            return True
        if self._waiting:
            # Requests in flight, here or in another stage, may cost less than reserved: then the
            # whole slice will fit.
            whole = self._fitting() == len(self._waiting[0].requests)
            return whole or not self._budget.in_flight
        following = self._turn()
        return following == "now" or (following == "never" and not self._away)

    @property
    def _ends_now(self) -> bool:
        """Whether nothing more is sent, not even the rest of the open units."""
        return self._flow.broken or self._budget.check_limits() is not None

    def _next(self) -> Any:
        if self._ends_now:
            raise StopIteration
        if not self._waiting and self._turn() == "now":
            opened = self._begin()
            self._queue_slices(opened, opened.unsettled)
        if not self._waiting:
            raise StopIteration
        if not (fitting := self._fitting()):
            self._budget.refuse(self._client.most(self._waiting[0].requests[:1]))
            raise StopIteration
        return self._send(self._take(fitting))

    def _take_answers(self, key: str, answers: Sequence[Any]) -> None:
        """Take the answers to a slice: commit its unit if that settles it, else keep them."""
        flight = self._away.pop(key)
        opened = flight.of
        cost = self._client.actual_cost(flight.requests, answers, again=flight.again)
        self._client.note_failures(answers)
        self._warnings.note(self._client.remarks(answers))
        again = [
            place
            for at, answer in zip(flight.places, answers, strict=True)
            for place in opened.take_answer(at, answer)
        ]
        opened.cost += cost
        opened.slices -= 1
        whole = not again and not opened.slices
        if not whole or self._stage.commits_later:
            names = [self._client.name(request) for request in flight.requests]
            replies = self._client.serialize(names, answers)
            if replies is not None:
                spent = cost_of(cost, judge=self._client.judge)
                self._budget.keep(opened.unit.key, key, spent, replies)
        if whole:
            self._commit(opened)
        else:
            self._queue_slices(opened, again, first=True)

    def _turn(self) -> Turn:
        """Return when the next unit can begin."""
        if not self._admits or self._flow.ended:
            return "never"
        if self._flow.stop.paused:
            return "later"
        while self._following is None and (unit := self._readable()) is not None:
            self._following = self._open_unit(unit)
        if self._following is None:
            self._admits = bool(self._units)
            return "later" if self._units else "never"
        return self._afford(self._following) if self._budget.limited else "now"

    def _readable(self) -> Unit | None:
        """Remove and return the first unit whose input is committed."""
        for place, unit in enumerate(islice(self._units, LOOKAHEAD)):
            if not self._stage.waits(unit):
                del self._units[place]
                return unit
        return None

    def _afford(self, following: _OpenUnit[Q]) -> Turn:
        """Return when the budget has room for a unit's requests.

        The last units before a limit begin one at a time. The very last one sends as many requests
        as fit into the budget, and their answers are kept.
        """
        requests, client = following.requests(following.unsettled), self._client
        expected, first = client.expected_cost(requests), client.most(requests[:SLICE])
        if self._budget.expects(expected) and self._budget.fits(first):
            return "now"
        if self._budget.spending:
            return "later"
        least = client.most(requests[:1])
        if self._budget.fits(least):
            return "now"
        self._budget.refuse(least)
        self._admits = False
        return "never"

    def _begin(self) -> _OpenUnit[Q]:
        """Begin the next unit; call it only when it can begin now."""
        opened, self._following = self._following, None
        if opened is None:
            raise RuntimeError("no unit is ready to begin")
        expected = self._client.expected_cost(opened.requests(opened.unsettled))
        self._budget.open(opened.unit.key, expected)
        return opened

    def _open_unit(self, unit: Unit) -> _OpenUnit[Q] | None:
        """Open a unit with its kept answers; one without a question is committed at once."""
        questions = {(n,): question for n, question in enumerate(self._work(unit))}
        opened = _OpenUnit(unit=unit, questions=questions)
        if self._budget.has_kept(unit.key):
            self._take_kept_answers(opened)
        if opened.unsettled:
            return opened
        self._commit(opened)
        return None

    def _take_kept_answers(self, opened: _OpenUnit[Q]) -> None:
        """Apply the answers that an earlier attempt paid for."""
        kept = {
            name: answer
            for text in self._journal.replies(opened.unit.key)
            for name, answer in self._client.read(text).items()
        }
        open_ = opened.unsettled
        while open_:
            place = open_.pop()
            question = opened.questions[place]
            request = question.request()
            if (name := self._client.name(request)) in kept:
                again = question.attempts > 0
                opened.cost += self._client.actual_cost([request], [kept[name]], again=again)
                open_ += opened.take_answer(place, kept[name])

    def _fitting(self) -> int:
        """Return how many requests of the next slice the budget has room for."""
        requests = self._waiting[0].requests
        if not self._budget.limited or self._budget.fits(self._client.most(requests)):
            return len(requests)
        most = Cost()
        for number, request in enumerate(requests):
            most += self._client.most([request])
            if not self._budget.fits(most):
                return number
        return len(requests)

    def _take(self, fitting: int) -> _Slice[Q]:
        """Take the first requests of the next slice; the others stay in the queue."""
        whole = self._waiting.popleft()
        if fitting == len(whole.requests):
            return whole
        first = replace(whole, places=whole.places[:fitting], requests=whole.requests[:fitting])
        places, requests = whole.places[fitting:], whole.requests[fitting:]
        rest = replace(whole, key=self._new_key(whole.of), places=places, requests=requests)
        whole.of.slices += 1
        self._waiting.appendleft(rest)
        return first

    def _queue_slices(
        self, opened: _OpenUnit[Q], places: Sequence[Place], *, first: bool = False
    ) -> None:
        """Queue slices of a unit for sending; before all others if `first`."""
        by_round = [
            [place for place in places if (opened.questions[place].attempts > 0) is again]
            for again in (False, True)
        ]
        slices = [
            _Slice(
                key=self._new_key(opened),
                of=opened,
                places=part,
                requests=opened.requests(part),
                again=bool(again),
            )
            for again, own in enumerate(by_round)
            for part in (own[at : at + SLICE] for at in range(0, len(own), SLICE))
        ]
        opened.slices += len(slices)
        if first:
            self._waiting.extendleft(reversed(slices))
        else:
            self._waiting.extend(slices)

    def _new_key(self, opened: _OpenUnit[Q]) -> str:
        return f"{opened.unit.key}/{next(self._numbers)}"

    def _send(self, going: _Slice[Q]) -> Any:
        most = self._client.most(going.requests)
        self._budget.reserve(going.of.unit.key, most, slice_=going.key)
        self._away[going.key] = going
        return self._client.batch(going.key, going.requests, again=going.again)

    def _commit(self, opened: _OpenUnit[Q]) -> None:
        questions = [opened.questions[place] for place in sorted(opened.questions)]
        self._commit_unit(opened.unit, questions, opened.cost)
