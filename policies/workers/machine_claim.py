"""Machines that joined a run, what replicas wish to have of them, and how that ends."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .channel import Blame

POLLED_S = 2.0
"""A claim that nobody has asked about for so long is wanted later, if ever."""


@dataclass(frozen=True, slots=True)
class Parting:
    """How a worker ended, the last that its machine says of it, and to what that is put down.

    `fatal`: there will be no other one, however long somebody waits.
    """

    how: str
    words: str
    blame: Blame
    fatal: bool = False


class Worksite(Protocol):
    """What a queue has done at a machine that joined."""

    def post(self, session: int, frame: bytes) -> None:
        """Send a frame to a session there."""
        ...

    def begin(self, session: int, gpus: int) -> None:
        """Have a session begin there, on so many GPUs."""
        ...

    def end(self, session: int, *, grace: bool) -> None:
        """Have a session end there."""
        ...


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a machine could not serve a model, and when it turned out."""

    why: str
    since: float


@dataclass(eq=False, kw_only=True)
class Machine:
    """A machine that joined: a GPU of it is a place, and so is one that has none.

    `unfit` are the models that it lately could not serve; `deaths` counts, by models,
    the processes in a row that ended there before they had loaded. `kept` are the places kept for
    replicas whose process died there, and until when.
    """

    name: str
    gpus: int
    site: Worksite
    claims: dict[int, "WorkerClaim"] = field(default_factory=dict[int, "WorkerClaim"])
    unfit: dict[str, Unfit] = field(default_factory=dict[str, Unfit])
    deaths: Counter[str] = field(default_factory=Counter[str])
    kept: dict[object, tuple[int, float]] = field(default_factory=dict[object, tuple[int, float]])

    @property
    def free(self) -> int:
        """How many places no model has."""
        kept = sum(places for places, _ in self.kept.values())
        return max(1, self.gpus) - kept - sum(claim.taken for claim in self.claims.values())

    @property
    def coming(self) -> int:
        """How many places will be free once what was told to end has ended."""
        return self.free + sum(claim.taken for claim in self.claims.values() if claim.ending)

    def holds(self, gpus: int) -> int:
        """Return how many places a replica that wants so many GPUs takes."""
        return gpus if self.gpus else 1


@dataclass(eq=False, kw_only=True)
class WorkerClaim:
    """A replica's wish for a worker, and the worker once it has one.

    `group` names the model to people, `model` is what is loaded, and `replica` whose wish it is: a
    replica whose worker died wishes for the next one. `on_frame` takes what the worker sends,
    `on_given` is told that one is there, `on_end` that there is none any more. `patience_s` is how
    long its model may go without any; None for ever. `since` is when somebody began to wait for
    it, `polled` when somebody last did; `idle_since` when it last had nothing to do, None while it
    has. One that has `loaded` may die of what it is asked, which its supervisor looks into. Once
    it is `dismissed`, its end tells nothing of its machine. One that is `ending` has been told to
    end, and its machine has not said yet that it has.
    """

    group: str
    model: str
    gpus: int
    on_frame: Callable[[bytes], None]
    on_given: Callable[[], None]
    on_end: Callable[[Parting], None]
    replica: object = field(default_factory=object)
    patience_s: float | None = None
    since: float = field(default_factory=time.monotonic)
    polled: float = 0.0
    idle_since: float | None = None
    member: Machine | None = None
    session: int = 0
    taken: int = 0
    loaded: bool = False
    dismissed: bool = False
    ending: bool = False

    def is_urgent(self, now: float) -> bool:
        """Whether somebody waits for it."""
        return self.member is None and now - self.polled < POLLED_S

    def idled(self, now: float) -> float:
        """Return for how many seconds it has had nothing to do, or nobody has asked for it."""
        unasked = now - self.polled - POLLED_S
        return max(unasked, 0.0 if self.idle_since is None else now - self.idle_since)
