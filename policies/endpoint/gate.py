"""One endpoint's gate: whether requests may pass, how many at once, and how fast it answers.

A Retry-After closes it until the time named; failures in a row trip it (a circuit breaker), and
after a cool-down one request is sent on trial. A gate starts like a tripped one, so a wrong key
costs one request. A garbled answer is the fault of its request alone, unless nearly all of an
endpoint's last answers are.

An endpoint that says it has too many requests (429) gets half of them from then on, and one more
after each round of answers (additive increase, multiplicative decrease): the slots of the others
are their own. One that was down begins with a few slots, and has one
more after each answer, until it has all or says that these are too many (slow start).
"""

import logging
import math
from collections import deque
from dataclasses import dataclass, field

from .faults import TemporaryError
from .pace import PaceBooking, RequestPace

TRIP_AFTER = 5
FIRST_SLOTS = 4
"""The slots of an endpoint that returns."""
RECENT = 32
"""How many of an endpoint's last answers are remembered."""
GARBLED_SHARE = 0.9
"""The share of garbled answers, of so many, from which an endpoint counts as down."""
COOL_DOWN_S = 2.0
LONGEST_COOL_DOWN_S = 60.0
NOTABLE_S = 10.0
"""Shorter pauses are not worth a warning."""

LATEST = 0.1
"""What the latest answer counts for in an endpoint's speed."""
FORGETTING = 0.01
"""How far each quicker answer takes the slowest one back."""
SHORTEST_S = 1e-6

SLACK_S = 1e-3
"""Event loops may call a timer a moment early."""

logger = logging.getLogger("lpfloop.endpoint")


@dataclass(slots=True, eq=False)
class Gate:
    """The state of one endpoint; times are those of the event loop.

    `slots` are the requests that may be under way, at most `most`; `latency_s` is how long an
    answer takes on average, `slowest_s` how long the slowest of late took. `pace` is how fast it
    may be asked, by all engines together. Up to `ceiling` slots grow with each answer.
    """

    place: int
    url: str
    most: int
    slots: float
    under_way: int = 0
    opens_at: float = -math.inf
    proven: bool = False
    trier: "Passage | None" = None
    failures: int = 0
    trips: int = 0
    told: str = "it has not answered yet"
    garbled: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    halved_at: float = -math.inf
    latency_s: float | None = None
    slowest_s: float = 0.0
    used_since: float | None = None
    ceiling: float = math.inf
    pace: RequestPace = field(default_factory=RequestPace)

    def is_open(self, now: float) -> bool:
        """Whether requests may pass, or one on trial."""
        return self.trier is None and self.opens_at <= now + SLACK_S

    def slowness_s(self, now: float) -> float:
        """Return how long the slowest answers take; before the first, how long it has taken yet."""
        if self.latency_s is not None:
            return self.slowest_s
        return 0.0 if self.used_since is None else now - self.used_since

    @property
    def has_room(self) -> bool:
        """Whether one more may be under way."""
        return self.under_way < max(1, int(self.slots))

    @property
    def rate(self) -> float:
        """How many answers a second it gives when all of its slots are taken; 0: not known."""
        return 0.0 if self.latency_s is None else int(self.slots) / self.latency_s

    def resize(self, most: int) -> None:
        """Change how many requests may be under way."""
        self.slots = float(most) if self.slots >= self.most else min(self.slots, most)
        self.most = most

    def prove(self) -> None:
        """Note that the endpoint answers: all requests may pass."""
        if self.trips:
            logger.warning("%s: answers again", self.url)
        if not self.proven:
            self.proven, self.trier = True, None
            if self.trips:
                self.slots, self.ceiling = float(min(self.most, FIRST_SLOTS)), math.inf
        self.failures = self.trips = 0

    def answered(self, passage: "Passage", now: float) -> None:
        """Learn from an answer how fast the endpoint is."""
        self.prove()
        self.garbled.append(False)
        if self.slots < self.most:
            more = 1.0 if self.slots < self.ceiling else 1 / self.slots
            self.slots = min(self.slots + more, self.most)
        if not passage.on_trial:
            latency = max(now - passage.began, SHORTEST_S)
            before = latency if self.latency_s is None else self.latency_s
            self.latency_s = before + LATEST * (latency - before)
            self.slowest_s = max(latency, self.slowest_s + FORGETTING * (latency - self.slowest_s))

    def failed(self, passage: "Passage", fault: TemporaryError, now: float) -> None:
        """Learn from a failure, which is no more under way: pause, take fewer, or be down."""
        self.told = str(fault)
        is_full = fault.crowded and self.proven and self.slots > 1
        if is_full and passage.began >= self.halved_at:
            self.slots = self.ceiling = max(min(self.slots, self.under_way + 1) / 2, 1.0)
            self.halved_at = now
        if fault.pause_s is not None:
            self.opens_at = max(self.opens_at, now + fault.pause_s)
            level = logging.INFO if fault.pause_s < NOTABLE_S else logging.WARNING
            logger.log(level, "%s: asks for a pause of %.1f s (%s)", self.url, fault.pause_s, fault)
            return
        if is_full:
            return
        self.failures += not fault.garbled
        self.garbled.append(fault.garbled)
        logger.info("%s: %s", self.url, fault)
        is_down = self.failures >= TRIP_AFTER or self.is_garbling
        if self.trier is passage or (self.proven and is_down):
            self._trip(fault, now)

    @property
    def is_garbling(self) -> bool:
        """Whether nearly all of the last answers are garbled."""
        return sum(self.garbled) >= GARBLED_SHARE * RECENT

    def _trip(self, fault: TemporaryError, now: float) -> None:
        rest = min(COOL_DOWN_S * 2.0 ** min(self.trips, 10), LONGEST_COOL_DOWN_S)
        self.trips += 1
        self.proven = False
        self.garbled.clear()
        self.opens_at = max(self.opens_at, now + rest)
        logger.warning("%s: not used for %.0f s (%s)", self.url, rest, fault)


@dataclass(slots=True, eq=False)
class Passage:
    """One admitted attempt."""

    gate: Gate
    began: float
    on_trial: bool
    booking: PaceBooking
