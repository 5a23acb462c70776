"""An engine, and a scorer, whose model lives in a worker process of its own."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...configs.schema import EngineConfig, RewardConfig
from ...stores.records import Message
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
)
from . import wire
from .node_model import opened_elsewhere, sought_model
from .sent_stream import SentStream
from .supervised import Proof, Supervisor
from .work import GENERATE, MEASURE, OWN_SCORE, SCORE, SLEEP, WAKE, In, Out, WorkKind, reload_of
from .worker import Starter, WorkerInfo
from .worker_line import WAIT_S

SCORER_STALL_S = 900.0
SCORER_RESTARTS = 3


class WorkerEngine:
    """An `Engine` whose model lives in a worker process, here or `elsewhere`; `start` begins it."""

    def __init__(
        self,
        kind: str,
        model: str,
        config: EngineConfig,
        *,
        start: Starter,
        elsewhere: bool = False,
    ) -> None:
        opening = _opening("engine", kind, model, config)
        self._elsewhere = elsewhere
        self._opening = opened_elsewhere(opening) if elsewhere else opening
        self._supervisor = Supervisor(
            lambda: start(self._opening), restarts=config.restarts, stall_s=config.stall_s
        )

    @property
    def pid(self) -> int | None:
        """The present worker's process id, or None."""
        return self._supervisor.pid

    def ready(self) -> WorkerInfo:
        """Wait until the model is loaded; return versions and window of its engine."""
        return self._supervisor.ready()

    @property
    def waits(self) -> bool:
        """Whether no node has had room for the worker yet."""
        return self._supervisor.waits

    def loaded(self, within_s: float) -> WorkerInfo | None:
        """Wait until the model is loaded; return None if it is not `within_s` seconds from now."""
        found = self._supervisor.loaded(within_s)
        return None if found is None else found[1]

    def stream(self, items: Iterable[In], work: WorkKind[In, Out]) -> Iterator[Out]:
        """Send items to the worker while it has room, and yield its results as they come."""
        return SentStream(self._supervisor, items, work).results()

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches` in the worker; yield each batch when it is whole."""
        return self.stream(batches, GENERATE)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation in the worker."""
        requests = (
            ScoreRequest(request_id=str(number), messages=messages)
            for number, messages in enumerate(conversations)
        )
        batch = ScoreBatch(key="measured", requests=tuple(requests))
        [result] = self.stream([batch], MEASURE)
        return list(result.logprobs)

    def reload(self, folder: Path) -> None:
        """Replace the model's weights by those of another folder, of the same architecture.

        From now on a restarted worker loads that folder, too.

        Raises:
            EngineError: if it cannot; close it then, as it may have some of them.
        """
        template = self._opening["config"].get("template")
        model = sought_model(folder, template) if self._elsewhere else {"model": str(folder)}
        self._opening |= model
        self._supervisor.prove(None)
        self._supervisor.order(reload_of(model), anew=True)

    def prove(self, proof: Proof) -> None:
        """Prove the weights now, and those of each worker from now on before it is given work.

        Raises:
            EngineError: if they are not what is meant.
        """
        self._supervisor.prove(proof)

    def expect(self, proof: Proof) -> None:
        """Have each worker prove its weights from now on, once it is loaded."""
        self._supervisor.proof = proof

    def can_sleep(self) -> bool:
        """Say whether to sleep frees anything, once the model is loaded, if it has a node."""
        while not self.waits:
            if (info := self.loaded(WAIT_S)) is not None:
                return info.sleeps
        return True

    def sleep(self) -> None:
        """Move the model into the machine's memory; nothing may be in flight."""
        self._supervisor.order(SLEEP)

    def wake(self) -> None:
        """Move the model back to its devices; a restarted worker's is there already."""
        self._supervisor.order(WAKE)

    def configure(self, config: EngineConfig) -> None:
        """Use the new stall limit from now on."""
        self._supervisor.stall_s = config.stall_s

    def close(self) -> None:
        """End the worker."""
        self._supervisor.close()


class WorkerScorer:
    """A `Scorer` whose model, or function of the user's own, lives in a worker process.

    `function` is the identity of such a function, of which `model` is the place. A model that
    `entails` compares a text with a statement.
    """

    def __init__(
        self,
        model: str | Path,
        config: RewardConfig,
        *,
        start: Starter,
        function: str | None = None,
        entails: bool = False,
        elsewhere: bool = False,
    ) -> None:
        kind = "entailment" if entails else config.runner if function is None else "function"
        own = _opening("scorer", kind, str(model), config) | {"identity": function}
        opening = opened_elsewhere(own) if elsewhere else own
        self.work = SCORE if function is None else OWN_SCORE
        self._supervisor = Supervisor(
            lambda: start(opening),
            restarts=SCORER_RESTARTS,
            stall_s=SCORER_STALL_S,
        )

    @property
    def pid(self) -> int | None:
        """The present worker's process id, or None."""
        return self._supervisor.pid

    def ready(self) -> WorkerInfo:
        """Wait until the model is loaded; return versions and window of its engine."""
        return self._supervisor.ready()

    @property
    def waits(self) -> bool:
        """Whether no node has had room for the worker yet."""
        return self._supervisor.waits

    def loaded(self, within_s: float) -> WorkerInfo | None:
        """Wait until the model is loaded; return None if it is not `within_s` seconds from now."""
        found = self._supervisor.loaded(within_s)
        return None if found is None else found[1]

    def stream(self, items: Iterable[In], work: WorkKind[In, Out]) -> Iterator[Out]:
        """Send items to the worker while it has room, and yield its results as they come."""
        return SentStream(self._supervisor, items, work).results()

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch in the worker; yield each when it is whole."""
        return self.stream(batches, self.work)

    def can_sleep(self) -> bool:
        """Say whether to sleep frees anything, once the model is loaded, if it has a node."""
        while not self.waits:
            if (info := self.loaded(WAIT_S)) is not None:
                return info.sleeps
        return True

    def sleep(self) -> None:
        """Move the model into the machine's memory; nothing may be in flight."""
        self._supervisor.order(SLEEP)

    def wake(self) -> None:
        """Move the model back to its device; a restarted worker's is there already."""
        self._supervisor.order(WAKE)

    def close(self) -> None:
        """End the worker."""
        self._supervisor.close()


def _opening(role: str, kind: str, model: str, config: EngineConfig | RewardConfig) -> wire.Frame:
    """Return the frame that says what to load, without the endpoint's key."""
    fields: dict[str, Any] = config.model_dump(mode="json", exclude={"api_key"})
    return {"op": "open", "role": role, "kind": kind, "model": model, "config": fields}
