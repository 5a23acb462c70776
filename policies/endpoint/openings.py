"""Which gates are closed, when the next one opens, and for how long any was open."""

import math

from .gate import SLACK_S, Gate


class Openings:
    """The gates that let nothing pass: until a time, or until their trial ends."""

    def __init__(self) -> None:
        self.next = math.inf
        self._count = 0
        self._closed = set[Gate]()
        self._open_s = self._since = 0.0

    @property
    def count(self) -> int:
        """How many gates are open."""
        return self._count - len(self._closed)

    def __contains__(self, gate: Gate) -> bool:
        return gate not in self._closed

    def join(self, now: float) -> None:
        """Count one gate more, which is open."""
        self._open_s, self._since = self.clock(now), now
        self._count += 1

    def note(self, gate: Gate, now: float) -> bool:
        """Take in a change of a gate; return whether it is open."""
        is_open = gate.is_open(now)
        if not is_open or gate in self._closed:
            self._open_s, self._since = self.clock(now), now
            (self._closed.discard if is_open else self._closed.add)(gate)
            self._look_ahead()
        return is_open

    def _look_ahead(self) -> None:
        self.next = min((g.opens_at for g in self._closed if g.trier is None), default=math.inf)

    def due(self, now: float) -> list[Gate]:
        """Return the gates whose time has come."""
        if self.next > now + SLACK_S:
            return []
        return [gate for gate in self._closed if gate.is_open(now)]

    def clock(self, now: float) -> float:
        """Return for how long any gate was open so far."""
        return self._open_s + (now - self._since if self.count else 0.0)
