"""Connections to endpoints: no proxy, no redirect, and a size limit on replies.

Proxies from the environment are not used: a key must reach its endpoint and no other host. Time is
not limited here: the caller sets one deadline for the whole attempt.
"""

import ssl
from functools import lru_cache

import httpx2

ANSWER_BYTES = 8 * 2**20
"""The largest reply, decompressed: about 40,000 tokens with log-probabilities.

The client library decompresses in pieces of at most 1 MiB, each counted before the next is made.
"""

ANSWER_PARTS = 150_000
"""The most objects and lists in a reply, at three a token. The client library makes a large object
of each, so that a few megabytes of brackets would fill gigabytes.
"""

ERROR_BYTES = 2**16
"""How much of an error's body is read."""

KEPT_CONNECTIONS = 256
_ENCODING = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class AnswerTooLargeError(Exception):
    """A reply is larger than any chat completion can be."""


def new_client() -> httpx2.AsyncClient:
    """Return a client for any number of endpoints; it belongs to one event loop."""
    return httpx2.AsyncClient(
        transport=BoundedTransport(), follow_redirects=False, timeout=None, trust_env=False
    )


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Reads every answer whole, or as much of it as is allowed after decompression."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(
            verify=_trusted(),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return its answer with the body read.

        Raises:
            AnswerTooLargeError: for a success beyond the limits. Of an error only the beginning is
                kept.
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
        limit = ANSWER_BYTES if answer.is_success else ERROR_BYTES
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > limit:
                if answer.is_success:
                    raise AnswerTooLargeError
                break
        if answer.is_success and body.count(b"{") + body.count(b"[") > ANSWER_PARTS:
            raise AnswerTooLargeError
        return bytes(body[:limit])

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


@lru_cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
