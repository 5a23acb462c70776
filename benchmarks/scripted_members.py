"""A thousand scripted members of a pool, which answer and die in this process."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lpfloop.configs.schema import EngineConfig
from lpfloop.loop.run.models import Models
from lpfloop.loop.run.served import Served
from lpfloop.policies.engines.engine import Batch, BatchResult, Completion, Engine
from lpfloop.policies.workers.hosted_model import GivenUpError, HostedModel
from lpfloop.policies.workers.places import Placement
from lpfloop.policies.workers.replicas import Replicas
from lpfloop.policies.workers.work import WorkerInfo, WorkKind


@dataclass(kw_only=True)
class Troupe:
    """Behaviour of members: seconds an answer, rate of deaths, number of members that never work.

    A dying member loses its requests. `fates` counts the starts, deaths and losses.
    """

    window: int
    answer_s: float = 0.0
    deaths: float = 0.0
    broken: int = 0
    letters: int = 16
    seed: int = 0
    fates: Counter[str] = field(default_factory=Counter[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def note(self, fate: str) -> None:
        """Count a member's fate."""
        with self._lock:
            self.fates[fate] += 1

    def dies(self, number: int) -> bool:
        """Return whether this member dies of its slice."""
        return number < self.broken or self._draw.random() < self.deaths

    def pause(self) -> None:
        """Sleep for an answer's time."""
        if self.answer_s:
            time.sleep(self.answer_s * (0.5 + self._draw.random()))


class Member(HostedModel):
    """A replica that answers each request with its seed, so that all replicas answer alike."""

    pid = None
    waits = False

    def __init__(self, number: int, troupe: Troupe) -> None:
        self._number = number
        self._troupe = troupe
        troupe.note("began")

    def loaded(self) -> WorkerInfo:
        """Return the number of requests it takes ahead."""
        window = self._troupe.window
        return WorkerInfo(engine="script", device="none", versions={}, window=window, sleeps=False)

    def nudge(self) -> None:
        """Do nothing: the member only waits for items."""

    def stream(
        self, items: Iterable[Batch], work: WorkKind[Batch, Completion], *, shared: bool = False
    ) -> Iterator[BatchResult]:
        """Answer slice after slice, or die."""
        del shared
        for item in items:
            self._troupe.pause()
            if self._troupe.dies(self._number):
                self._troupe.note("died")
                raise GivenUpError(f"member {self._number} died of a {work.task}")
            yield answered(item, self._troupe.letters)

    def close(self) -> None:
        """End."""


def answered(batch: Batch, letters: int) -> BatchResult:
    """Return the answers to a batch, which depend on its requests alone."""
    return BatchResult(
        key=batch.key,
        answers=tuple(
            Completion(
                request_id=request.request_id,
                text=f"{request.seed:<{letters}}",
                prompt_tokens=8,
                completion_tokens=6,
                finish_reason="stop",
                logprob=-1.0,
            )
            for request in batch.requests
        ),
    )


def member_engine(count: int, troupe: Troupe) -> Replicas[EngineConfig]:
    """Return an engine of so many members."""
    return Replicas(
        lambda number, *_: Member(number, troupe),
        "none",
        EngineConfig(),
        lambda _config: [Placement(place="local")] * count,
    )


@dataclass(kw_only=True)
class MemberModels(Models):
    """A run's models, all played by the pool of members."""

    members: Replicas[EngineConfig]

    def engine(self, served: Served) -> Engine:
        """Return the pool of members."""
        del served
        return self.members

    def close(self) -> None:
        """End the members."""
        self.members.close()
