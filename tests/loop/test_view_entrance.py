"""Who may ask the viewer anything, over real HTTP on the loopback address."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lpfloop.loop.view.entrance import Entrance
from lpfloop.loop.view.server import configured, listening

TOKEN = "a-token"
LATE_S = 120
"""An answer comes within a second, unless the machine is busy."""


@contextmanager
def served(app) -> Iterator[str]:
    """Serve an application behind its guard; give its address."""
    with listening(0) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(configured(Entrance(app, port, TOKEN)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
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
    """Give a client that has come in by the token."""
    with httpx2.Client(base_url=place, trust_env=False, timeout=LATE_S) as client:
        assert client.get(f"/?token={TOKEN}").status_code == 303
        yield client


def ask(place: str, method: str = "GET", path: str = "/", **headers: str) -> httpx2.Response:
    """Ask with exactly these headers."""
    with httpx2.Client(trust_env=False, timeout=LATE_S) as client:
        return client.request(method, f"{place}{path}", headers=headers)


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_have(place):
    answer = ask(place, path=f"/runs/a%20b?x=1&token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{place}/runs/a%20b?x=1"
    kept = answer.headers["set-cookie"]
    assert kept.startswith(f"lpfloop-{port_of(place)}={TOKEN};")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(kept.split("; "))
    assert "Max-Age" not in kept


def test_the_cookie_opens_the_pages(place):
    with let_in(place) as client:
        assert client.get("/runs").text == "GET /runs"


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=wrong", f"/?token={TOKEN}x"])
def test_without_the_token_nothing_is_shown(place, path):
    answer = ask(place, path=path)
    assert answer.status_code == 403
    assert "GET" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.:{port}"]
)
def test_another_host_is_refused_even_with_the_token(place, host):
    said = host.format(port=port_of(place))
    answer = ask(place, path=f"/?token={TOKEN}", Host=said)
    assert answer.status_code == 400
    with let_in(place) as client:
        assert client.get("/", headers={"Host": said}).status_code == 400


def test_localhost_is_the_same_host(place):
    answer = ask(place, path=f"/?token={TOKEN}", Host=f"localhost:{port_of(place)}")
    assert answer.headers["location"] == f"http://localhost:{port_of(place)}/"


def test_two_hosts_are_refused(place):
    port = int(port_of(place))
    with socket.create_connection(("127.0.0.1", port)) as wire:
        hosts = f"Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"
        wire.sendall(f"GET /?token={TOKEN} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
        assert b" 400 " in wire.recv(4096).partition(b"\r\n")[0]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("origin", [None, "null", "http://127.0.0.1:1", "https://evil.example"])
def test_a_change_from_elsewhere_is_refused_even_with_the_cookie(place, method, origin):
    headers = {} if origin is None else {"Origin": origin}
    with let_in(place) as client:
        assert client.request(method, "/", headers=headers).status_code == 403


def test_a_change_from_an_own_page_needs_the_cookie_too(place):
    with let_in(place) as client:
        assert client.post("/x", headers={"Origin": place}).text == "POST /x"
    assert ask(place, "POST", Origin=place).status_code == 403
    assert ask(place, "POST", f"/?token={TOKEN}", Origin=place).status_code == 403


def test_the_way_in_leads_nowhere_else(place):
    answer = ask(place, path=f"//evil.example/?token={TOKEN}")
    assert answer.headers["location"] == f"{place}//evil.example/"


@pytest.mark.parametrize("path", ["/", f"/?token={TOKEN}", "/?token=wrong"])
def test_every_answer_says_what_a_browser_may_do(place, path):
    headers = ask(place, path=path).headers
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "base-uri 'none'"} <= set(policy)
    assert {"form-action 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_a_page_that_the_end_of_the_server_leaves_undrawn_is_no_fault(capfd):
    asked = threading.Event()

    async def answer(_):
        asked.set()
        await asyncio.sleep(1000)

    with served(Starlette(routes=[Route("/", answer)])) as place:
        port = int(port_of(place))
        with socket.create_connection(("127.0.0.1", port)) as wire:
            cookie = f"Host: 127.0.0.1:{port}\r\nCookie: lpfloop-{port}={TOKEN}\r\n"
            wire.sendall(f"GET / HTTP/1.1\r\n{cookie}\r\n".encode())
            assert asked.wait(LATE_S)
    assert "Traceback" not in capfd.readouterr().err


def test_only_the_loopback_address_listens():
    with listening(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
