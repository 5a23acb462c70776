"""Connections to endpoints: no proxy, no redirect, and no answer beyond a size.

Proxies that the environment names are not used, because a key must reach its endpoint and nobody
else. Time is not bounded here: the caller gives each attempt one deadline for all of it.
"""

import ssl
from functools import lru_cache

import httpx2

ANSWER_BYTES = 8 * 2**20
"""The longest answer that is read, decompressed: about 40,000 tokens with log-probabilities."""

KEPT_CONNECTIONS = 256
_ENCODING = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class AnswerTooLargeError(Exception):
    """An endpoint sends more than anybody asked for."""


def new_client() -> httpx2.AsyncClient:
    """Return a client for any number of endpoints; it belongs to one event loop."""
    return httpx2.AsyncClient(
        transport=BoundedTransport(), follow_redirects=False, timeout=None, trust_env=False
    )


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Reads every answer whole, and no further than `limit` bytes after decompression."""

    def __init__(self, limit: int = ANSWER_BYTES) -> None:
        self._limit = limit
        self._inner = httpx2.AsyncHTTPTransport(
            verify=_trusted(),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return its answer with the body read.

        Raises:
            AnswerTooLargeError: for a success that goes on and on. Of an error only the beginning
                is kept.
        """
        answer = await self._inner.handle_async_request(request)
        answer.request = request
        try:
            body = await self._body(answer)
        finally:
            await answer.aclose()
        kept = [
            (name, value)
            for name, value in answer.headers.multi_items()
            if name.lower() not in _ENCODING
        ]
        return httpx2.Response(answer.status_code, headers=kept, content=body, request=request)

    async def _body(self, answer: httpx2.Response) -> bytes:
        body = bytearray()
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > self._limit:
                if answer.is_success:
                    raise AnswerTooLargeError
                break
        return bytes(body[: self._limit])

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


@lru_cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
