"""Vectors of texts from an OpenAI-compatible endpoint's /v1/embeddings."""

import asyncio
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...configs.schema import EmbedderConfig, EngineConfig
from ..engines.engine import EngineError
from .endpoint import ServedModel, addresses, api_key, ask
from .faults import ATTEMPT_ERRORS, RefusedError, fault_of
from .queue import Job, RequestQueue, Server
from .transport import Connections, reading

SETTINGS = EngineConfig(concurrency=8, retry_timeout_s=900.0)
CHARACTERS_A_TOKEN = 4
"""The endpoint's tokenizer is not known here, so texts are truncated by characters."""


class EndpointEmbedder:
    """Asks one endpoint, several requests at a time, on its own event loop."""

    def __init__(self, url: str, config: EmbedderConfig) -> None:
        (self._url,) = addresses(url, SETTINGS)
        self._key = api_key(SETTINGS)
        self._config = config
        self._served: ServedModel | None = None
        self._connections = Connections(self._url, self._key)
        self._requests = RequestQueue([self._url], SETTINGS, self._key)
        self._runner = asyncio.Runner()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one vector a text, in order, as the bytes of 32-bit floats.

        Raises:
            EngineError: when the endpoint refuses, or does not answer for too long.
        """
        return self._runner.run(self._all(texts))

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._connections.aclose())
        self._runner.close()

    async def _all(self, texts: Sequence[str]) -> list[bytes]:
        longest = self._config.max_tokens * CHARACTERS_A_TOKEN
        # Some servers refuse an empty text.
        cut = [text[:longest] or " " for text in texts]
        size = self._config.batch_size
        groups = [cut[i : i + size] for i in range(0, len(cut), size)]
        jobs = [Job(partial(self._attempt, group), self._check) for group in groups]
        try:
            async with asyncio.TaskGroup() as asking:
                asked = [asking.create_task(self._requests.ask(job)) for job in jobs]
        except* RefusedError as refused:
            raise EngineError(f"{self._url}: {refused.exceptions[0]}") from None
        except* EngineError as errors:
            raise errors.exceptions[0] from None
        return [vector for task in asked for vector in task.result()]

    async def _check(self, server: Server) -> None:
        await self._attempt(["check"], server)

    async def _attempt(self, texts: list[str], server: Server) -> list[bytes]:
        try:
            async with asyncio.timeout(SETTINGS.timeout_s):
                if self._served is None:
                    self._served = await ask(self._connections, self._config.model_name)
                    self._requests.prove(server)
                answer: Any = await self._connections.post(
                    "embeddings",
                    {"model": self._served.name, "input": texts, "encoding_format": "float"},
                )
                with reading(answer):
                    return _vectors(answer, len(texts))
        except ATTEMPT_ERRORS as error:
            fault = fault_of(self._url, error, self._key)
        raise fault  # outside: a traceback from within would hold the server's text


def _vectors(answer: Any, count: int) -> list[bytes]:
    """Return the `count` vectors of a reply; raise an error that `reading` knows otherwise."""
    rows = sorted(answer["data"], key=lambda row: row["index"])
    vectors = [array("f", row["embedding"]).tobytes() for row in rows]
    if len(vectors) != count or len({len(v) for v in vectors}) != 1:
        raise ValueError
    return vectors
