"""Connections to endpoints: no proxy, no redirect, no cookie, bounded replies.

Proxies from the environment are not used: a key must reach its endpoint and no other host. Time is
not limited here: the caller sets one deadline for the whole attempt.

Requests go through `aiohttp`: the `openai` client takes several times its processor time
(`benchmarks/endpoints.py`). Only batch files go through that client.
"""

import asyncio
import json
import resource
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

import aiohttp
from yarl import URL

ANSWER_BYTES = 8 * 2**20
"""The largest reply, decompressed: about 40,000 tokens with log-probabilities.

It is decompressed in pieces of at most 1 MiB, each counted before the next is made.
"""

ANSWER_PARTS = 150_000
"""The most objects and lists in a reply, at three a token: a few megabytes of brackets would make
objects that fill gigabytes.
"""

ERROR_BYTES = 2**16
"""The bytes read of an error's body."""

HEADER_BYTES = 2**16
"""The longest header, and the longest line of a reply's head."""

NO_KEY = "none"
"""Sent if no key is configured, because some servers require one."""

SENT = {"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": "lpfloop"}
"""The headers of each request, except the key and the body's headers."""
JSON = {"Content-Type": "application/json"}

OTHER_FILES = 512
"""Open files that a process may need in addition to connections."""


class AnswerTooLargeError(Exception):
    """A reply exceeds the size limits."""


class UnreadableReplyError(ValueError):
    """A success without the expected content: `received` is its JSON value, or its text."""

    def __init__(self, received: object) -> None:
        super().__init__()
        self.received = received


@contextmanager
def reading(reply: object) -> Generator[None]:
    """Read a reply in the block.

    Raises:
        UnreadableReplyError: if the reply lacks a field, or a field has another type.
    """
    try:
        yield
    except UnreadableReplyError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        raise UnreadableReplyError(reply) from None


class StatusError(Exception):
    """An error reply: its status, its headers by names in lower case, and its body."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.content = content


class Connections:
    """The connections to one endpoint, one per request in flight, on one event loop."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        self.key = key
        self._base = URL(url)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """Return the endpoint's reply to `body`; raise as `get`."""
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # An event loop that was blocked learns now which connections the server has closed
        # meanwhile.
        await asyncio.sleep(0)
        return await self._reply("POST", path, data=content.encode(), headers=JSON)

    async def get(self, path: str) -> object:
        """Return the endpoint's reply to a path.

        Raises:
            StatusError: if the status is an error, or the body reports an error 4xx.
            AnswerTooLargeError: for a success beyond the limits.
            aiohttp.ClientError, OSError: if no reply comes, or it cannot be decompressed.
            UnreadableReplyError: if it is not JSON.
        """
        return await self._reply("GET", path)

    async def _reply(self, method: str, path: str, **sent: Any) -> object:
        body, status, headers = bytearray(), 0, dict[str, str]()
        url = _below(self._base, path)
        async with self._open().request(method, url, allow_redirects=False, **sent) as reply:
            status, headers = reply.status, {n.lower(): text for n, text in reply.headers.items()}
            is_success = HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
            limit = ANSWER_BYTES if is_success else ERROR_BYTES
            async for part in reply.content.iter_any():
                body += part
                if len(body) > limit:
                    break
        if not is_success:  # of an error only the beginning is read
            raise StatusError(status, headers, bytes(body[:limit]))
        content = bytes(body)
        if not is_reasonable(content):
            raise AnswerTooLargeError
        value = parse_json(content)
        error = reported_status(value)
        if error is not None:
            raise StatusError(error, headers, content)
        return value

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        """Return the session; it belongs to the event loop that first asks for it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=_ssl_context()),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={**SENT, "Authorization": f"Bearer {self.key or NO_KEY}"},
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
                max_line_size=HEADER_BYTES,
                max_field_size=HEADER_BYTES,
            )
        return self._session


def is_reasonable(content: bytes) -> bool:
    """Whether a reply is within the limits of bytes and parts."""
    parts = content.count(b"{") + content.count(b"[")
    return len(content) <= ANSWER_BYTES and parts <= ANSWER_PARTS


def parse_json(content: bytes) -> object:
    """Return the JSON value of a reply.

    Raises:
        UnreadableReplyError: if it is not JSON.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        text = content[:ERROR_BYTES].decode("utf-8", "replace")
        raise UnreadableReplyError(text) from None


def reported_status(value: object) -> int | None:
    """Return the status 4xx of an error that a server reports in the body of a success."""
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, object]", value)
    error = fields.get("error")
    if fields.get("choices") or not (error or {"msg", "message", "detail"} & fields.keys()):
        return None
    code = (cast("dict[str, object]", error) if isinstance(error, dict) else fields).get("code")
    if isinstance(code, str) and code.isdecimal():
        code = int(code[:4])
    if isinstance(code, int) and HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return code
    return None


def allow_connections(count: int) -> None:
    """Raise this process's limit of open connections to `count`, if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_FILES
    if soft not in (resource.RLIM_INFINITY, hard) and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@lru_cache
def _below(base: URL, path: str) -> URL:
    below = f"{base.raw_path.rstrip('/')}/{path}"
    return base.with_path(below, encoded=True, keep_query=True)


@lru_cache
def _ssl_context() -> ssl.SSLContext:
    return ssl.create_default_context()
