"""How fast an endpoint may be asked: requests and tokens a minute, for all that ask it together.

Engines with the same address, key and model share a pace, whichever stage they work for, since a
provider counts them together. A request goes when, with it, no minute has more than is allowed, by
what those before it did cost; one that is under way counts with the most that it may cost. So that
a provider that counts by the second is not surprised, six seconds have a tenth of the requests.

Who has to wait gets the next turn: an engine with large requests does not starve beside one with
small ones.
"""

import math
import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

MINUTE_S = 60.0
SHORT_S, SHORT_SHARE = 6.0, 10
TURN_S = 0.01
"""How soon somebody asks again who only waits for another's turn."""
RECHECK_S = 1.0
"""How soon somebody asks again who waits for tokens, which answers may give back."""
LATE_S = 0.25
"""Who does not come back by so much after the time told loses the turn."""


@dataclass(slots=True, eq=False)
class PaceBooking:
    """A request that was let go: when, and how many tokens it counts for."""

    at: float
    tokens: int


@dataclass(slots=True, eq=False)
class _Window:
    """What has gone of late, and the most that may go in any such time."""

    seconds: float
    most: float = math.inf
    total: float = 0.0
    gone: deque[tuple[PaceBooking, float]] = field(default_factory=deque[tuple[PaceBooking, float]])

    def forget(self, now: float) -> None:
        """Leave out what went too long ago to count."""
        while self.gone and self.gone[0][0].at + self.seconds <= now:
            self.total -= self.gone.popleft()[1]

    def ready_at(self, amount: float, now: float) -> float:
        """Return when so much may go; what is more than is ever allowed goes alone."""
        over = self.total + min(amount, self.most) - self.most
        ready = now
        for booking, went in self.gone:
            if over <= 0:
                break
            ready, over = booking.at + self.seconds, over - went
        return ready

    def add(self, booking: PaceBooking, amount: float) -> None:
        """Count what goes."""
        if self.most < math.inf:
            self.gone.append((booking, amount))
            self.total += amount

    def correct(self, booking: PaceBooking, amount: float) -> None:
        """Count what went as so much, if it still counts."""
        for place, (other, before) in enumerate(self.gone):
            if other is booking:
                self.gone[place] = (booking, amount)
                self.total += amount - before
                return


class RequestPace:
    """The limits of those that ask an endpoint together; of different ones the lowest holds."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._requests = (_Window(MINUTE_S), _Window(SHORT_S))
        self._tokens = _Window(MINUTE_S)
        self._limits: dict[Hashable, tuple[float, float]] = {}
        self._turns: dict[Hashable, float] = {}

    def limit(self, who: Hashable, requests: int | None, tokens: int | None) -> None:
        """Take in the limits of one that asks, in place of its earlier ones."""
        with self._mutex:
            self._limits[who] = (requests or math.inf, tokens or math.inf)
            self._set()

    def leave(self, who: Hashable) -> None:
        """Forget the limits of one that asks no more; what it asked still counts."""
        with self._mutex:
            self._limits.pop(who, None)
            self._turns.pop(who, None)
            self._set()

    def stand_back(self, who: Hashable) -> None:
        """Note that one does not wait any more."""
        with self._mutex:
            self._turns.pop(who, None)

    def _set(self) -> None:
        """Let the lowest limits hold; once there are none, nothing counts."""
        requests = min((own for own, _ in self._limits.values()), default=math.inf)
        minute, short = self._requests
        minute.most = requests
        short.most = requests if requests == math.inf else math.ceil(requests / SHORT_SHARE)
        self._tokens.most = min((own for _, own in self._limits.values()), default=math.inf)

    @property
    def limits_tokens(self) -> bool:
        """Whether tokens count."""
        return self._tokens.most < math.inf

    def book(self, who: Hashable, tokens: int, now: float) -> PaceBooking | float:
        """Let a request go that counts for so many tokens; else return the seconds to wait."""
        with self._mutex:
            windows = (*self._requests, self._tokens)
            for window in windows:
                window.forget(now)
            ready = max(window.ready_at(1, now) for window in self._requests)
            # What is under way may cost less than it counts for.
            by_tokens = min(self._tokens.ready_at(tokens, now), now + RECHECK_S)
            ready = max(ready, by_tokens)
            if ready <= now and not self._others_first(who, now):
                self._turns.pop(who, None)
                booking = PaceBooking(now, tokens)
                for window in self._requests:
                    window.add(booking, 1)
                self._tokens.add(booking, tokens)
                return booking
            wait = max(ready - now, TURN_S)
            self._turns[who] = now + wait + LATE_S
            return wait

    def count(self, now: float) -> None:
        """Count a request that went without being asked, such as one that is put otherwise."""
        with self._mutex:
            for window in self._requests:
                window.add(PaceBooking(now, 0), 1)

    def correct(self, booking: PaceBooking, tokens: int) -> None:
        """Count a request for the tokens that it did cost."""
        with self._mutex:
            booking.tokens = tokens
            self._tokens.correct(booking, tokens)

    def _others_first(self, who: Hashable, now: float) -> bool:
        """Whether somebody waits who came before, and is not late."""
        self._turns = {other: until for other, until in self._turns.items() if until >= now}
        first = next(iter(self._turns), who)
        return first != who


PACES: WeakValueDictionary[Hashable, RequestPace] = WeakValueDictionary()
_MAKING = threading.Lock()


def pace_of(url: str, key: str | None, model: str | None) -> RequestPace:
    """Return the pace of all engines in this process that ask a model with a key at an address."""
    with _MAKING:
        pace = PACES.get((url, key, model))
        if pace is None:
            PACES[url, key, model] = pace = RequestPace()
        return pace
