"""An engine, and a scorer, of any number of replicas; what they give does not depend on it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ...configs.schema import EngineConfig, RewardConfig
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    EngineError,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
    UnloadableError,
)
from .places import Berth, engine_berths
from .replica_pool import ReplicaPool
from .shared_stream import SharedStream
from .supervised import GivenUpError, Proof
from .work import GENERATE, MEASURE, WorkKind
from .worker_models import WorkerEngine, WorkerScorer

TOGETHER = 16
"""Answers that one replica measures before it gets the next ones."""

EngineOpener = Callable[[int, Berth, str, EngineConfig], WorkerEngine]
"""Opens the replica of a number, where it is to be, on a folder, under a configuration."""

ScorerOpener = Callable[[int, Berth], WorkerScorer]
"""Opens the replica of a number, where it is to be."""


class EnginePool:
    """An `Engine` whose model lives in workers that share its batches; they come and go."""

    def __init__(
        self, opener: EngineOpener, model: str, config: EngineConfig, berths: Sequence[Berth]
    ) -> None:
        self._opener = opener
        self._model = model
        self._config = config
        self._proof: Proof | None = None
        self._pool = ReplicaPool(self._opened, berths)

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the present workers."""
        return [seat.replica.pid for seat in self._pool.seats]

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole."""
        return SharedStream(self._pool, batches, GENERATE).results()

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation, each in one of the replicas."""
        requests = [
            ScoreRequest(request_id=str(number), messages=messages)
            for number, messages in enumerate(conversations)
        ]
        slices = (
            ScoreBatch(key=str(first), requests=tuple(requests[first : first + TOGETHER]))
            for first in range(0, len(requests), TOGETHER)
        )
        results = SharedStream(self._pool, slices, MEASURE).results()
        found = {int(result.key): result.logprobs for result in results}
        return [said for first in sorted(found) for said in found[first]]

    def prove(self, proof: Proof) -> None:
        """Have every replica prove its weights now, and each later one before it is given work.

        Raises:
            EngineError: as `proof` does, of the first that does not hold the weights; that of
                the first, if none can be loaded.
        """
        self._proof = proof
        self._pool.each(lambda replica: replica.prove(proof))

    def reload(self, folder: Path) -> None:
        """Replace the weights of every replica by those of another folder.

        One that cannot is closed, and opened anew on that folder by the next stream.

        Raises:
            EngineError: if none can.
        """
        self._model, self._proof = str(folder), None
        self._pool.each(lambda replica: _reload(replica, folder))

    def can_sleep(self) -> bool:
        """Say whether to sleep frees anything, once the model is loaded."""
        return all(self._pool.each(lambda replica: replica.can_sleep()))

    def sleep(self) -> None:
        """Move every replica into the machine's memory; nothing may be in flight."""
        self._pool.sleep()

    def wake(self) -> None:
        """Move every replica back to its devices."""
        self._pool.wake()

    def configure(self, config: EngineConfig) -> None:
        """Use the new stall limit, and so many replicas, from now on."""
        self._config = config
        self._pool.resize(engine_berths(config))
        for seat in self._pool.seats:
            seat.replica.configure(config)

    def close(self) -> None:
        """End every worker."""
        self._pool.close()

    def _opened(self, number: int, berth: Berth) -> WorkerEngine:
        replica = self._opener(number, berth, self._model, self._config)
        if self._proof is not None:
            replica.expect(self._proof)
        return replica


def _reload(replica: WorkerEngine, folder: Path) -> None:
    try:
        replica.reload(folder)
    except UnloadableError:
        raise
    except EngineError as error:
        # It may have some of the new weights.
        replica.close()
        raise GivenUpError(str(error)) from error


class ScorerPool:
    """A `Scorer` whose model lives in workers, opened by `start`, which share its batches."""

    def __init__(
        self,
        start: ScorerOpener,
        work: WorkKind[ScoreBatch, ScoreResult],
        berths: Callable[[RewardConfig], Sequence[Berth]],
        config: RewardConfig,
    ) -> None:
        self._work = work
        self._berths = berths
        self._pool = ReplicaPool(start, berths(config))

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the present workers."""
        return [seat.replica.pid for seat in self._pool.seats]

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; yield each when it is whole."""
        return SharedStream(self._pool, batches, self._work).results()

    def can_sleep(self) -> bool:
        """Say whether to sleep frees anything, once the model is loaded."""
        return all(self._pool.each(lambda replica: replica.can_sleep()))

    def sleep(self) -> None:
        """Move every replica into the machine's memory; nothing may be in flight."""
        self._pool.sleep()

    def wake(self) -> None:
        """Move every replica back to its device."""
        self._pool.wake()

    def configure(self, config: RewardConfig) -> None:
        """Use so many replicas from now on."""
        self._pool.resize(self._berths(config))

    def close(self) -> None:
        """End every worker."""
        self._pool.close()
