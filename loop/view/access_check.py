"""Access control of the viewer: every request and every answer passes here.

A request must name this very address as its host (else a foreign domain name could be pointed
here), and carry the token that `lpfloop view` printed. GET and HEAD are read-only; any other method
must also come from one of this server's own pages.
"""

import secrets
from asyncio import CancelledError
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"  # noqa: S105 -- the name of a field, not a secret
READING = frozenset({"GET", "HEAD"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The default headers of each answer; a page can set others."""


def new_token() -> str:
    """Return an unguessable token."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """The application behind its guard, on a port of the loopback address."""

    app: ASGIApp
    port: int
    token: str

    @property
    def cookie(self) -> str:
        """The cookie's name; cookies know no ports, so that two viewers need two names."""
        return f"lpfloop-{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(message)
            await send(message)

        answer = self._refusal(Request(scope)) or self.app
        # A server that shuts down cancels the requests that it no longer waits for.
        with suppress(CancelledError):
            await answer(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that must not pass, or that only brings the token."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._hosts():
            return PlainTextResponse("This is not the address that is served here.", 400)
        given = request.query_params.get(TOKEN)
        if given is not None and request.method in READING:
            return self._entry(request, hosts[0]) if self._right(given) else _stranger()
        if not self._right(request.cookies.get(self.cookie, "")):
            return _stranger()
        if request.method not in READING and not self._own(request):
            return PlainTextResponse("Only the viewer's own pages may change anything.", 403)
        return None

    def _hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def _right(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())

    def _own(self, request: Request) -> bool:
        """Whether a request that may change something comes from a page of this server."""
        origins = request.headers.getlist("origin")
        return origins == [f"http://{request.headers['host']}"]

    def _entry(self, request: Request, host: str) -> Response:
        """Keep the token in a cookie, and lead to the same page without it in the address."""
        rest = [(key, value) for key, value in request.query_params.multi_items() if key != TOKEN]
        query = f"?{urlencode(rest)}" if rest else ""
        # With the host: a path that begins with two slashes would lead elsewhere without.
        place = f"http://{host}{quote(request.url.path)}{query}"
        answer = RedirectResponse(place, 303)
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
        return answer


def _stranger() -> Response:
    return PlainTextResponse("Open the address that `lpfloop view` printed: it has a token.", 403)


def _complete(message: MutableMapping[str, object]) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
