"""An embedder whose model lives in a worker process."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...configs.schema import EmbedderConfig
from ...stores.records import Message
from ..engines.engine import ScoreBatch, ScoreRequest
from .sent_stream import SentStream
from .supervised import Supervisor
from .work import EMBED
from .worker import child_workers

STALL_S = 900.0
RESTARTS = 3


class WorkerEmbedder:
    """Sends texts of similar length together, and restores the order of their vectors."""

    def __init__(self, model: Path, config: EmbedderConfig, *, log: Path) -> None:
        opening = {
            "op": "open",
            "role": "embedder",
            "model": str(model),
            "config": config.model_dump(mode="json"),
        }
        self._size = config.batch_size
        start = child_workers(log=log)
        self._supervisor = Supervisor(lambda: start(opening), restarts=RESTARTS, stall_s=STALL_S)

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector a text, in order, as the bytes of 32-bit floats."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        groups = [order[i : i + self._size] for i in range(0, len(order), self._size)]
        vectors = [b""] * len(texts)
        batches = _batches(texts, groups)
        for result in SentStream(self._supervisor, batches, EMBED).results():
            for place, vector in zip(groups[int(result.key)], result.vectors, strict=True):
                vectors[place] = vector
        return vectors

    def close(self) -> None:
        """End the worker."""
        self._supervisor.close()


def _batches(texts: Sequence[str], groups: Sequence[Sequence[int]]) -> Iterator[ScoreBatch]:
    for number, group in enumerate(groups):
        requests = (
            ScoreRequest(
                request_id=str(place), messages=(Message(role="user", content=texts[place]),)
            )
            for place in group
        )
        yield ScoreBatch(key=str(number), requests=tuple(requests))
