"""Which endpoint takes the next request: the one that will have answered it soonest."""

import heapq
import math

from .gate import LATEST, Gate

SPARE = 4
"""A heap of so many entries a gate is cleared of those that hold no longer."""

Entry = tuple[float, int, Gate]
"""When a gate would have answered one more, when that was noted, and the gate."""


class Ranking:
    """The gates that have room, by the requests under way over the rate at which they answer.

    What is noted of a gate stays in the heap until it comes up, and counts only if it is the latest
    note; so a request costs the logarithm of the number of gates.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._latest: dict[Gate, int] = {}
        self._notes = 0
        self._usual_rate = 1.0

    def note(self, gate: Gate, *, is_open: bool) -> None:
        """Take in a change of a gate."""
        self._notes += 1
        self._latest[gate] = self._notes
        if gate.rate:
            self._usual_rate += LATEST * (gate.rate - self._usual_rate)
        if is_open and gate.has_room:
            heapq.heappush(self._heap, (self._next_answer_s(gate), self._notes, gate))
        if len(self._heap) > SPARE * (len(self._latest) + SPARE):
            self._heap = [entry for entry in self._heap if self._holds(entry)]
            heapq.heapify(self._heap)

    def first(self, avoiding: Gate | None = None) -> Gate | None:
        """Return the gate that answers soonest, but for one; None if none has room."""
        first = self._top()
        if first is None or first is not avoiding:
            return first
        entry = heapq.heappop(self._heap)
        second = self._top()
        heapq.heappush(self._heap, entry)
        return second

    def _next_answer_s(self, gate: Gate) -> float:
        """Return how long one more would take; endless where the first is still to be answered."""
        if not gate.proven:
            return math.inf
        return (gate.under_way + 1) / (gate.rate or self._usual_rate)

    def _top(self) -> Gate | None:
        while self._heap and not self._holds(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def _holds(self, entry: Entry) -> bool:
        return self._latest.get(entry[2]) == entry[1]
