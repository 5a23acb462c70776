"""An engine on a stage's virtual clock, which stands while whoever draws from it has work to do."""

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from virtual import LoopCaller, VirtualLoop

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.endpoint.stream import Stream
from lpfloop.policies.engines.engine import Batch, BatchResult


class StagedEngine(OpenAIEngine):
    """An engine on a `VirtualLoop`, for one stream at a time.

    The loop has a thread of its own. If its clock did not stand meanwhile, it would depend on the
    machine how much happens before the caller's thread adds a batch or takes a result.
    """

    def __init__(
        self, model: str, config: EngineConfig, *, folder: Path | None = None, loop: VirtualLoop
    ) -> None:
        self._callers = loop.callers
        self._caller = LoopCaller()
        super().__init__(model, config, folder=folder, loop=loop)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw; until the end of the stream time goes on only while a result is waited for."""
        self._caller = LoopCaller()
        with self._present():
            yield from super().generate(batches)

    @contextmanager
    def away(self) -> Generator[None]:
        """Let time go on though the caller waits for nothing."""
        self._callers.discard(self._caller)
        yield
        self._callers.add(self._caller)

    def close(self) -> None:
        """Close the engine, also in the middle of a stream."""
        self._callers.discard(self._caller)
        super().close()

    @contextmanager
    def _present(self) -> Generator[None]:
        caller = self._caller
        self._callers.add(caller)
        try:
            yield
        finally:
            self._callers.discard(caller)

    def _submit(self, batch: Batch, stream: Stream) -> Future[BatchResult]:
        """Add a batch; from the first one on its caller waits where the loop sees it."""
        stream._events = self._caller  # type: ignore[assignment]
        return super()._submit(batch, stream)
