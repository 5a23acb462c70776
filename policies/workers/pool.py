"""An engine, and a scorer, of several replicas; what they give does not depend on how many."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.schema import EngineConfig
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
)
from .replica_pool import ReplicaPool, Seat
from .work import GENERATE, MEASURE
from .worker_models import WorkerEngine, WorkerScorer

TOGETHER = 16
"""Answers that one replica measures before it gets the next ones."""

EngineOpener = Callable[[int, str, EngineConfig], WorkerEngine]
"""Opens the replica of a number, on a folder, under a configuration."""


@dataclass(frozen=True, slots=True)
class EngineReplica:
    """One replica of an engine, to be measured by itself."""

    _pool: ReplicaPool[WorkerEngine]
    _seat: Seat[WorkerEngine]

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation in this replica."""
        return _measured(self._pool, conversations, [self._seat])


class EnginePool:
    """An `Engine` whose model lives in several workers, which share its batches."""

    def __init__(self, opener: EngineOpener, model: str, config: EngineConfig, count: int) -> None:
        self._model = model
        self._config = config
        self._pool = ReplicaPool(lambda number: opener(number, self._model, self._config), count)

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the present workers."""
        return [seat.replica.pid for seat in self._pool.seats]

    @property
    def replicas(self) -> Sequence[EngineReplica]:
        """The replicas, each of which holds the weights by itself."""
        return [EngineReplica(self._pool, seat) for seat in self._pool.seats]

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole."""
        return self._pool.stream(batches, GENERATE)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation, each in one of the replicas."""
        return _measured(self._pool, conversations)

    def reload(self, folder: Path) -> None:
        """Replace the weights of every replica by those of another folder."""
        self._model = str(folder)
        self._pool.each(lambda replica: replica.reload(folder))

    def can_sleep(self) -> bool:
        """Say whether to sleep frees anything, once the model is loaded."""
        return all(self._pool.each(lambda replica: replica.can_sleep()))

    def sleep(self) -> None:
        """Move every replica into the machine's memory; nothing may be in flight."""
        self._pool.each(lambda replica: replica.sleep())

    def wake(self) -> None:
        """Move every replica back to its devices."""
        self._pool.each(lambda replica: replica.wake())

    def configure(self, config: EngineConfig) -> None:
        """Use the new stall limit from now on."""
        self._config = config
        for seat in self._pool.seats:
            seat.replica.configure(config)

    def close(self) -> None:
        """End every worker."""
        self._pool.close()


class ScorerPool:
    """A `Scorer` whose model lives in several workers, opened by `start`, which share its batches.

    It needs one replica at least.
    """

    def __init__(self, start: Callable[[int], WorkerScorer], count: int) -> None:
        self._pool = ReplicaPool(start, count)
        self._work = self._pool.seats[0].replica.work

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the present workers."""
        return [seat.replica.pid for seat in self._pool.seats]

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; yield each when it is whole."""
        return self._pool.stream(batches, self._work)

    def can_sleep(self) -> bool:
        """Say whether to sleep frees anything, once the model is loaded."""
        return all(self._pool.each(lambda replica: replica.can_sleep()))

    def sleep(self) -> None:
        """Move every replica into the machine's memory; nothing may be in flight."""
        self._pool.each(lambda replica: replica.sleep())

    def wake(self) -> None:
        """Move every replica back to its device."""
        self._pool.each(lambda replica: replica.wake())

    def close(self) -> None:
        """End every worker."""
        self._pool.close()


def _measured(
    pool: ReplicaPool[WorkerEngine],
    conversations: Sequence[tuple[Message, ...]],
    seats: Sequence[Seat[WorkerEngine]] | None = None,
) -> list[AnswerLogprob | None]:
    """Measure conversations in slices, by the replicas in `seats` or by all."""
    requests = [
        ScoreRequest(request_id=str(number), messages=messages)
        for number, messages in enumerate(conversations)
    ]
    slices = (
        ScoreBatch(key=str(first), requests=tuple(requests[first : first + TOGETHER]))
        for first in range(0, len(requests), TOGETHER)
    )
    found = {int(result.key): result.logprobs for result in pool.stream(slices, MEASURE, seats)}
    return [said for first in sorted(found) for said in found[first]]
