"""A thousand scripted members of a pool, which answer and die in this process."""

import queue
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from lpfloop.configs.schema import EngineConfig
from lpfloop.loop.run.models import Models
from lpfloop.loop.run.served import Served
from lpfloop.policies.engines.engine import Batch, BatchResult, Completion, Engine
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import Answer, Frame, Item, ModelProcess, WorkerInfo
from lpfloop.policies.workers.places import Placement


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


class Member(ModelProcess):
    """A process that answers each request with its seed, so that all replicas answer alike."""

    def __init__(self, number: int, troupe: Troupe, wake: threading.Event) -> None:
        super().__init__(wake)
        self._number = number
        self._troupe = troupe
        self._items: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        window = troupe.window
        self._heard(WorkerInfo(window=window, sleeps=False))
        troupe.note("began")
        threading.Thread(target=self._work, daemon=True).start()

    def kill(self) -> None:
        """End."""
        self._items.put(None)

    close = kill

    def _put(self, frame: Frame, limit_s: float) -> None:
        del limit_s
        self._items.put(frame)

    def _ended(self) -> str:
        return "it died"

    def _last_words(self) -> str:
        return f"it is member {self._number}"

    def _work(self) -> None:
        """Answer slice after slice, or die (the body of a thread)."""
        while (frame := self._items.get()) is not None:
            if isinstance(frame, Item) and isinstance(frame.batch, Batch):
                self._troupe.pause()
                if self._troupe.dies(self._number):
                    self._troupe.note("died")
                    break
                self._heard(Answer(frame.call, answered(frame.batch, self._troupe.letters)))
        self._heard(None)


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


def member_engine(count: int, troupe: Troupe) -> HostedModel[EngineConfig]:
    """Return an engine of so many members."""
    here = [Placement(place="local")] * count

    def start(
        number: int, _at: Placement, _model: str, _config: EngineConfig, wake: threading.Event
    ) -> Member:
        return Member(number, troupe, wake)

    return HostedModel(start, "none", EngineConfig(), lambda _config: here)


@dataclass(kw_only=True)
class MemberModels(Models):
    """A run's models, all played by the pool of members."""

    members: HostedModel[EngineConfig]

    def engine(self, served: Served) -> Engine:
        """Return the pool of members."""
        del served
        return self.members

    def close(self) -> None:
        """End the members."""
        self.members.close()
