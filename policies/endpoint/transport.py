"""Connections to endpoints, and JSON over them: no proxy, no redirect, no cookie, bounded replies.

Proxies from the environment are not used: a key must reach its endpoint and no other host. Time is
not limited here: the caller sets one deadline for the whole attempt.
"""

import json
import resource
import ssl
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import httpx2
import openai

ANSWER_BYTES = 8 * 2**20
"""The largest reply, decompressed: about 40,000 tokens with log-probabilities.

It is decompressed in pieces of at most 1 MiB, each counted before the next is made.
"""

ANSWER_PARTS = 150_000
"""The most objects and lists in a reply, at three a token: a few megabytes of brackets would make
objects that fill gigabytes.
"""

ERROR_BYTES = 2**16
"""How much of an error's body is read."""

NO_KEY = "none"
"""Sent where no key is configured: some servers want any."""

SENT = frozenset(
    {
        *("accept", "accept-encoding", "authorization", "connection", "content-length"),
        *("content-type", "host", "user-agent"),
    }
)
"""The headers that are sent. The client library has more: of this machine, and from variables of
the environment that are meant for another host.
"""

KEPT = frozenset({"date", "retry-after"})
"""The headers of a reply that are looked at; without the others there is no cookie."""

OTHER_FILES = 512
"""Files besides connections that a process may need to have open."""


class AnswerTooLargeError(Exception):
    """A reply is larger than any can be."""


class Connections:
    """The connections to one endpoint, as many as requests are under way; of one event loop.

    The client library is used without its models: what an endpoint says is checked by the reader.
    Retries and time limits are the caller's. A reply may have `most` bytes, and so many `parts`.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        most: int = ANSWER_BYTES,
        parts: float = ANSWER_PARTS,
    ) -> None:
        self.url = url
        self.key = key
        self._url = httpx2.URL(url)
        self._http = httpx2.AsyncClient(
            transport=BoundedTransport(most, parts),
            follow_redirects=False,
            timeout=None,
            trust_env=False,
        )
        self._client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=key or NO_KEY,
            # Goes before one that the library finds in the environment.
            default_headers={"Authorization": f"Bearer {key or NO_KEY}"},
            max_retries=0,
            timeout=None,
            http_client=self._http,
        )

    async def get(self, path: str, **asked: object) -> object:
        """Return what the endpoint has at `path` below its address, for what is `asked`.

        Raises: as `post`.
        """
        return json.loads(await self.download(path, **asked))

    async def download(self, path: str, **asked: object) -> bytes:
        """Return the bytes that the endpoint has at `path`.

        Raises: as `post`, but for the last line.
        """
        address = _below(self._url, path)
        reply = await self._client.get(
            address, cast_to=httpx2.Response, options={"params": asked} if asked else {}
        )
        return reply.content

    async def upload(self, path: str, data: bytes, **fields: str) -> object:
        """Return what the endpoint replies to a file of JSON lines, sent with `fields` as a form.

        Raises: as `post`.
        """
        reply = await self._client.post(
            _below(self._url, path),
            body=fields,
            files=[("file", ("requests.jsonl", data, "application/jsonl"))],
            options={"headers": {"Content-Type": "multipart/form-data"}},
            cast_to=httpx2.Response,
        )
        return json.loads(reply.content)

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """Return what the endpoint replies to `body`.

        Raises:
            openai.APIStatusError: when the status is no success.
            AnswerTooLargeError: for a success beyond the limits.
            openai.APIConnectionError, OSError: when no reply comes, or none that can be unpacked.
            ValueError, RecursionError: when it is no JSON.
        """
        address = _below(self._url, path)
        reply = await self._client.post(address, body=body, cast_to=httpx2.Response)
        return json.loads(reply.content)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Reads every reply whole, or as much of it as is allowed after decompression.

    Each connection is a pool of its own, which holds that one: a pool of many looks at all of them
    whenever one is taken or given back.
    """

    def __init__(self, most: int, parts: float) -> None:
        self._most, self._parts = most, parts
        self._free: list[httpx2.AsyncHTTPTransport] = []
        self._all: list[httpx2.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return its reply with the body read.

        Raises:
            AnswerTooLargeError: for a success beyond the limits. Of an error only the beginning is
                kept.
        """
        connection = self._free.pop() if self._free else self._new()
        try:
            reply = await connection.handle_async_request(_bare(request))
            reply.request = request
            try:
                body = await _body(reply, self._most, self._parts)
            finally:
                await reply.aclose()
        finally:
            self._free.append(connection)
        headers = _named(reply.headers, KEPT)
        return httpx2.Response(reply.status_code, headers=headers, content=body)

    def _new(self) -> httpx2.AsyncHTTPTransport:
        connection = httpx2.AsyncHTTPTransport(verify=_trusted())
        self._all.append(connection)
        return connection

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in self._all:
            await connection.aclose()


def allow_connections(count: int) -> None:
    """Let this process have so many connections open, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _body(reply: httpx2.Response, most: int, parts: float) -> bytes:
    """Read a reply whole; of an error only the beginning."""
    body = bytearray()
    limit = most if reply.is_success else ERROR_BYTES
    async for part in reply.aiter_bytes():
        body += part
        if len(body) > limit:
            if reply.is_success:
                raise AnswerTooLargeError
            break
    if reply.is_success and body.count(b"{") + body.count(b"[") > parts:
        raise AnswerTooLargeError
    return bytes(body[:limit])


def _bare(request: httpx2.Request) -> httpx2.Request:
    """Return a request with the headers that are sent."""
    return httpx2.Request(
        request.method,
        request.url,
        headers=_named(request.headers, SENT),
        stream=request.stream,
        extensions=request.extensions,
    )


def _named(headers: httpx2.Headers, names: Collection[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name in names]


@lru_cache
def _below(url: httpx2.URL, path: str) -> str:
    return str(url.copy_with(path=f"{url.path.rstrip('/')}/{path}"))


@lru_cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
