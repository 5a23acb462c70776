"""Connections to endpoints, and JSON over them: no proxy, no redirect, no cookie, bounded replies.

Proxies from the environment are not used: a key must reach its endpoint and no other host. Time is
not limited here: the caller sets one deadline for the whole attempt.
"""

import base64
import json
import resource
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httpx2

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

OTHER_FILES = 512
"""Files besides connections that a process may need to have open."""


class AnswerTooLargeError(Exception):
    """A reply is larger than any can be."""


class HttpStatusError(Exception):
    """A reply whose status is no success."""

    def __init__(self, reply: httpx2.Response, body: bytes) -> None:
        super().__init__(f"HTTP {reply.status_code}")
        self.status: int = reply.status_code
        self.headers: Mapping[str, str] = reply.headers
        self.body = body


class Connections:
    """The connections to one endpoint, as many as requests are under way; of one event loop.

    Each is a pool of its own, which holds that one: a pool of many looks at all of them whenever
    one is taken or given back.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        self.key = key
        self._url = httpx2.URL(url)
        said = {"Accept": "application/json", "User-Agent": "lpfloop"}
        encoding = {"Accept-Encoding": "gzip, deflate"}
        opening = {"Authorization": _authorization(self._url, key or NO_KEY)}
        self._headers = {**said, **encoding, **opening}
        self._free: list[httpx2.AsyncHTTPTransport] = []
        self._all: list[httpx2.AsyncHTTPTransport] = []

    async def get(self, path: str) -> object:
        """Return what the endpoint has at `path` below its address.

        Raises: as `post`.
        """
        return await self._asked(httpx2.Request("GET", self._at(path), headers=self._headers))

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """Return what the endpoint replies to `body`.

        Raises:
            HttpStatusError: when the status is no success.
            AnswerTooLargeError: for a success beyond the limits.
            httpx2.HTTPError, OSError: when no reply comes, or none that can be unpacked.
            ValueError, RecursionError: when it is no JSON.
        """
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        headers = {**self._headers, "Content-Type": "application/json"}
        return await self._asked(
            httpx2.Request("POST", self._at(path), headers=headers, content=text.encode())
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in self._all:
            await connection.aclose()

    def _at(self, path: str) -> httpx2.URL:
        return _below(self._url, path)

    async def _asked(self, request: httpx2.Request) -> object:
        connection = self._free.pop() if self._free else self._new()
        try:
            reply = await connection.handle_async_request(request)
            reply.request = request
            try:
                body = await _body(reply)
            finally:
                await reply.aclose()
        finally:
            self._free.append(connection)
        if not reply.is_success:
            raise HttpStatusError(reply, body)
        return json.loads(body)

    def _new(self) -> httpx2.AsyncHTTPTransport:
        connection = httpx2.AsyncHTTPTransport(verify=_trusted())
        self._all.append(connection)
        return connection


def allow_connections(count: int) -> None:
    """Let this process have so many connections open, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _body(reply: httpx2.Response) -> bytes:
    """Read a reply whole; of an error only the beginning."""
    body = bytearray()
    limit = ANSWER_BYTES if reply.is_success else ERROR_BYTES
    async for part in reply.aiter_bytes():
        body += part
        if len(body) > limit:
            if reply.is_success:
                raise AnswerTooLargeError
            break
    if reply.is_success and body.count(b"{") + body.count(b"[") > ANSWER_PARTS:
        raise AnswerTooLargeError
    return bytes(body[:limit])


def _authorization(url: httpx2.URL, key: str) -> str:
    """Return what opens an endpoint: the user of its address, if it has one, else the key."""
    if not url.userinfo:
        return f"Bearer {key}"
    return f"Basic {base64.b64encode(unquote(url.userinfo.decode()).encode()).decode()}"


@lru_cache
def _below(url: httpx2.URL, path: str) -> httpx2.URL:
    return url.copy_with(path=f"{url.path.rstrip('/')}/{path}")


@lru_cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
