"""Connections to endpoints, and JSON over them: no proxy, no redirect, no cookie, bounded replies.

Proxies from the environment are not used: a key must reach its endpoint and no other host. Time is
not limited here: the caller sets one deadline for the whole attempt.

What a stage asks by the thousand goes through `aiohttp` alone: the `openai` client takes several
times its processor time (`benchmarks/endpoints.py`). That client does what is rare: lists of
models, and files of batches.
"""

import asyncio
import json
import resource
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

import aiohttp
import httpx2
import openai
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
"""How much of an error's body is read."""

HEADER_BYTES = 2**16
"""The longest header, and the longest line of a reply's head."""

NO_KEY = "none"
"""Sent where no key is configured: some servers want any."""

SENT = {"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": "lpfloop"}
"""The headers of each request, besides the key and what says how long the body is. Those of the
client library are left out: they tell of this machine, and some come from variables of the
environment that are meant for another host.
"""

KEPT = ("date", "retry-after")
"""The headers of a reply that are looked at."""

JSON = "application/json"

OTHER_FILES = 512
"""Files besides connections that a process may need to have open."""


class AnswerTooLargeError(Exception):
    """A reply is larger than any can be."""


class UnreadableReplyError(ValueError):
    """A success without what was asked for: `received` is its JSON value, or its text."""

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


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: its status, those headers that are looked at, and the body, decompressed."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether what was asked for came back."""
        return succeeded(self.status)


class Connections:
    """The connections to one endpoint, as many as requests are under way; of one event loop.

    What an endpoint says is checked by the reader. Retries and time limits are the caller's. A
    reply may have `most` bytes, and so many `parts`.
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
        self._wire = Wire(key or NO_KEY, most, parts)
        self._client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=key or NO_KEY,
            max_retries=0,
            timeout=None,
            http_client=httpx2.AsyncClient(
                transport=_ByWire(self._wire),
                follow_redirects=False,
                timeout=None,
                trust_env=False,
            ),
        )

    async def get(self, path: str, **asked: object) -> object:
        """Return what the endpoint has at `path` below its address, for what is `asked`.

        Raises: as `post`, but `openai.APIConnectionError` when no reply comes.
        """
        return parsed(await self.download(path, **asked))

    async def download(self, path: str, **asked: object) -> bytes:
        """Return the bytes that the endpoint has at `path`.

        Raises: as `get`, but for what is no JSON.
        """
        address = _below(self._url, path)
        reply = await self._client.get(
            address, cast_to=httpx2.Response, options={"params": asked} if asked else {}
        )
        return reply.content

    async def upload(self, path: str, data: bytes, **fields: str) -> object:
        """Return what the endpoint replies to a file of JSON lines, sent with `fields` as a form.

        Raises: as `get`.
        """
        reply = await self._client.post(
            _below(self._url, path),
            body=fields,
            files=[("file", ("requests.jsonl", data, "application/jsonl"))],
            options={"headers": {"Content-Type": "multipart/form-data"}},
            cast_to=httpx2.Response,
        )
        return parsed(reply.content)

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """Return what the endpoint replies to `body`.

        Raises:
            openai.APIStatusError: when the status is no success, or the body reports an error 4xx.
            AnswerTooLargeError: for a success beyond the limits.
            aiohttp.ClientError, OSError: when no reply comes, or none that can be unpacked.
            UnreadableReplyError: when it is no JSON.
        """
        address = _below(self._url, path)
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        reply = await self._wire.send("POST", address, content.encode(), JSON)
        if not reply.is_success:
            raise status_error(address, reply)
        value = parsed(reply.content)
        status = reported_status(value)
        if status is not None:
            raise status_error(address, replace(reply, status=status))
        return value

    async def aclose(self) -> None:
        """Close all connections."""
        await self._wire.aclose()


class Wire:
    """Sends requests with `key`; reads each reply whole, or as much of it as is allowed."""

    def __init__(self, key: str, most: int, parts: float) -> None:
        self._headers = {**SENT, "Authorization": f"Bearer {key}"}
        self._most, self._parts = most, parts
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, address: str, content: bytes, content_type: str) -> Reply:
        """Send a request, with a body of this type unless `content` is empty; return the reply.

        Raises:
            AnswerTooLargeError: for a success beyond the limits. Of an error only the beginning is
                kept.
            aiohttp.ClientError, OSError: when no reply comes, or none that can be unpacked.
        """
        # A loop that stood still hears now which connections the server has closed meanwhile.
        await asyncio.sleep(0)
        async with self._opened().request(
            method,
            URL(address, encoded=True),
            data=content or None,
            headers={"Content-Type": content_type} if content else {},
            allow_redirects=False,
        ) as reply:
            body = await self._body(reply)
        headers = {name: reply.headers[name] for name in KEPT if name in reply.headers}
        return Reply(reply.status, headers, body)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session; it belongs to the event loop that first asks for it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=_trusted()),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
                max_line_size=HEADER_BYTES,
                max_field_size=HEADER_BYTES,
            )
        return self._session

    async def _body(self, reply: aiohttp.ClientResponse) -> bytes:
        """Read a reply whole; of an error only the beginning."""
        is_success = succeeded(reply.status)
        limit = self._most if is_success else ERROR_BYTES
        body = bytearray()
        async for part in reply.content.iter_any():
            body += part
            if len(body) > limit:
                if is_success:
                    raise AnswerTooLargeError
                break
        if is_success and body.count(b"{") + body.count(b"[") > self._parts:
            raise AnswerTooLargeError
        return bytes(body[:limit])


class _ByWire(httpx2.AsyncBaseTransport):
    """Lets the client library send by a wire, which has the key and the headers."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content, kind = await request.aread(), request.headers.get("content-type", JSON)
        reply = await self._wire.send(request.method, str(request.url), content, kind)
        return httpx2.Response(reply.status, headers=reply.headers, content=reply.content)


def succeeded(status: int) -> bool:
    """Whether a status says so; servers have some that no standard names."""
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def parsed(content: bytes) -> object:
    """Return the JSON value of a reply.

    Raises:
        UnreadableReplyError: if it is no JSON.
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


def status_error(address: str, reply: Reply) -> openai.APIStatusError:
    """Return the error for a reply that is no success, with what the client library keeps of it."""
    response = httpx2.Response(
        reply.status,
        headers=reply.headers,
        content=reply.content,
        request=httpx2.Request("POST", address),
    )
    said: Any = response.text.strip()
    with suppress(ValueError, RecursionError):  # a page, or nothing
        said = json.loads(reply.content)
    if isinstance(said, dict):
        fields = cast("dict[str, object]", said)
        said = fields.get("error", fields)
    return openai.APIStatusError(f"HTTP {reply.status}", response=response, body=said)


def allow_connections(count: int) -> None:
    """Let this process have so many connections open, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@lru_cache
def _below(url: httpx2.URL, path: str) -> str:
    return str(url.copy_with(path=f"{url.path.rstrip('/')}/{path}"))


@lru_cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
