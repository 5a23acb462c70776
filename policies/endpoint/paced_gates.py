"""The gates of an engine that may not be asked for a while, because of a limit on their pace."""

import math
from collections.abc import Sequence

from .gate import SLACK_S, Gate
from .pace import PaceBooking


class PacedGates:
    """Which gates wait for their pace, and until when; the engine that asks is this object."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._limits: tuple[int | None, int | None] = (None, None)
        self._until: dict[Gate, float] = {}

    def __contains__(self, gate: Gate) -> bool:
        return gate in self._until

    @property
    def next(self) -> float:
        """When the first of them may be asked again."""
        return min(self._until.values(), default=math.inf)

    def limit(self, requests: int | None, tokens: int | None) -> None:
        """Change how many requests and tokens may go to each endpoint in a minute."""
        self._limits = (requests, tokens)
        self._until.clear()
        for gate in self._gates:
            gate.pace.limit(self, *self._limits)

    def book(self, gate: Gate, tokens: int, now: float) -> PaceBooking | None:
        """Let a request go by the pace of a gate; None, and the gate waits, if it may not."""
        booked = gate.pace.book(self, tokens, now)
        if isinstance(booked, PaceBooking):
            return booked
        self._until[gate] = now + booked
        return None

    def due(self, now: float) -> list[Gate]:
        """Take out the gates that may be asked again."""
        found = [gate for gate, until in self._until.items() if until <= now + SLACK_S]
        for gate in found:
            del self._until[gate]
        return found

    def stand_back(self) -> None:
        """Let others that ask the same endpoints go first: nothing waits here."""
        for gate in self._until:
            gate.pace.stand_back(self)

    def leave(self) -> None:
        """Ask no more, so that the limits of others hold."""
        for gate in self._gates:
            gate.pace.leave(self)
