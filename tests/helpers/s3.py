"""A real S3 server (moto's), and a proxy that makes requests fail."""

import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pyarrow.fs as pafs
import pytest
from processes import held_port

KEYS = {"AWS_ACCESS_KEY_ID": "made-up-id", "AWS_SECRET_ACCESS_KEY": "made-up-secret-key"}
START_S = 180
SLOW_S = 1.0


@contextmanager
def serving_s3() -> Generator[str]:
    """Start moto's server on loopback; yield its address, and end it."""
    pytest.importorskip("moto.server", reason="needs moto[s3], flask and flask-cors")
    with held_port() as port:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait_for(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def new_bucket(endpoint: str) -> str:
    """Make an empty bucket; return its name."""
    name = f"lake-{uuid.uuid4().hex[:12]}"
    files = pafs.S3FileSystem(
        access_key=KEYS["AWS_ACCESS_KEY_ID"], secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1", scheme="http", endpoint_override=urlsplit(endpoint).netloc,
        allow_bucket_creation=True,
    )  # fmt: skip
    files.create_dir(name)
    return name


def environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables for clients of the server."""
    return {**KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint}


@dataclass
class BadWay:
    """A proxy before the server; `faults` chooses the fault of each request.

    None: no fault. "500", "503", "403": that status. "reset": the connection breaks. "cut": it
    breaks after half of the body. "slow": it takes a second. "swallow": the proxy answers 200 and
    stores nothing. "hold": the proxy takes half of the body, then stops responding.
    """

    endpoint: str = ""
    faults: Callable[[str, str], str | None] = lambda _method, _path: None
    sent: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def first(self, number: int, fault: str, method: str = "PUT") -> None:
        """Make the first requests of a method fail."""
        left = [fault] * number

        def choose(asked: str, _: str) -> str | None:
            return left.pop() if left and asked == method else None

        self.faults = choose


@contextmanager
def bad_way(server: str) -> Iterator[BadWay]:
    """Start a proxy before the server at the address `server`; yield it."""
    way = BadWay()

    class Handler(_Handler):
        bad = way
        target = urlsplit(server).netloc

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    way.endpoint = f"http://127.0.0.1:{proxy.server_port}"
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield way
    finally:
        way.over.set()
        proxy.shutdown()
        proxy.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bad: BadWay
    target: str

    def _forward(self) -> None:
        self.bad.seen.append((self.command, self.path))
        fault = self.bad.faults(self.command, self.path)
        if fault in ("reset", "cut", "hold"):
            self._break(fault)
            return
        body = self._body()
        if fault == "slow":
            time.sleep(SLOW_S)
        if fault == "swallow":
            self._answer(200, [("ETag", '"none"')], b"")
        elif fault in ("500", "503", "403"):
            self._answer(int(fault), [], b"")
        else:
            self._pass_on(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _forward  # noqa: N815 -- http.server's names

    def _body(self) -> bytes:
        """Read the body of a request, by its Content-Length or in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = list[bytes]()
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _break(self, fault: str) -> None:
        if fault != "reset":
            self.rfile.read(int(self.headers.get("x-amz-decoded-content-length") or 0) // 2)
        if fault == "hold":
            self.bad.held.set()
            self.bad.over.wait()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def _pass_on(self, body: bytes) -> None:
        connection = http.client.HTTPConnection(self.target)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                connection.putheader(name, value)
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        connection.endheaders([body] if chunked else body, encode_chunked=chunked)
        response = connection.getresponse()
        data = response.read()
        self.bad.sent += len(data)
        headers = [(k, v) for k, v in response.getheaders() if k.lower() not in HOP]
        if self.command == "HEAD":
            headers.append(("Content-Length", response.headers.get("Content-Length", "0")))
        self._answer(response.status, headers, data)
        connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" or status >= 400:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, ValueError):
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""


HOP = ("content-length", "connection", "transfer-encoding")


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail("moto's server did not start")
            time.sleep(0.05)
        else:
            return
