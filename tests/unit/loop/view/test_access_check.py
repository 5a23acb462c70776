"""Access control of the viewer, over real HTTP on the loopback address."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lpfloop.loop.view.access_check import AccessCheck
from lpfloop.loop.view.server import listening, server_config

TOKEN = "a-token"
LATE_S = 120
"""Timeout; an answer takes less than a second unless the machine is busy."""


@contextmanager
def served(app) -> Iterator[str]:
    """Serve an application behind its guard; return its address."""
    with listening(0) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(server_config(AccessCheck(app, port, TOKEN)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    def answer(request):
        return PlainTextResponse(f"{request.method} {request.url.path}")

    methods = ["GET", "POST", "PUT", "DELETE"]
    with served(Starlette(routes=[Route("/{path:path}", answer, methods=methods)])) as address:
        yield address


def port_of(place: str) -> str:
    return place.rpartition(":")[2]


@contextmanager
def let_in(place: str) -> Iterator[httpx2.Client]:
    """Return a client that has logged in with the token."""
    with httpx2.Client(base_url=place, trust_env=False, timeout=LATE_S) as client:
        assert client.get(f"/?token={TOKEN}").status_code == 303
        yield client


def ask(place: str, method: str = "GET", path: str = "/", **headers: str) -> httpx2.Response:
    """Send a request with exactly these headers."""
    with httpx2.Client(trust_env=False, timeout=LATE_S) as client:
        return client.request(method, f"{place}{path}", headers=headers)


def test_token_becomes_a_cookie(place):
    answer = ask(place, path=f"/runs/a%20b?x=1&token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{place}/runs/a%20b?x=1"
    kept = answer.headers["set-cookie"]
    assert kept.startswith(f"lpfloop-{port_of(place)}={TOKEN};")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(kept.split("; "))
    assert "Max-Age" not in kept


def test_no_token_no_page(place, subtests):
    for path in ("/", f"/?token={TOKEN}x"):
        with subtests.test(path=path):
            answer = ask(place, path=path)
            assert answer.status_code == 403
            assert "GET" not in answer.text
            assert "set-cookie" not in answer.headers


def test_other_hosts_are_refused(place, subtests):
    for host in ("evil.example:{port}", "127.0.0.1:1", "localhost.:{port}"):
        with subtests.test(host=host):
            said = host.format(port=port_of(place))
            answer = ask(place, path=f"/?token={TOKEN}", Host=said)
            assert answer.status_code == 400
            with let_in(place) as client:
                assert client.get("/", headers={"Host": said}).status_code == 400


def test_cross_site_changes_are_refused(place, subtests):
    for origin in (None, "null", "https://evil.example"):
        with subtests.test(origin=origin), let_in(place) as client:
            headers = {} if origin is None else {"Origin": origin}
            for method in ("POST", "PUT", "DELETE"):
                assert client.request(method, "/", headers=headers).status_code == 403


def test_own_changes_need_the_cookie(place):
    with let_in(place) as client:
        assert client.post("/x", headers={"Origin": place}).text == "POST /x"
    assert ask(place, "POST", Origin=place).status_code == 403
    assert ask(place, "POST", f"/?token={TOKEN}", Origin=place).status_code == 403


def test_no_open_redirect(place):
    answer = ask(place, path=f"//evil.example/?token={TOKEN}")
    assert answer.headers["location"] == f"{place}//evil.example/"


def test_security_headers(place, subtests):
    for path in ("/", f"/?token={TOKEN}", "/?token=wrong"):
        with subtests.test(path=path):
            headers = ask(place, path=path).headers
            policy = headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "script-src 'self'", "base-uri 'none'"} <= set(policy)
            assert {"form-action 'self'", "frame-ancestors 'none'"} <= set(policy)
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"


def test_listens_on_loopback_only():
    with listening(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
