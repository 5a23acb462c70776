"""Connections to an endpoint, for an event loop that pauses."""

import asyncio
import socket
import threading
from contextlib import closing

import pytest
from processes import held_port

from lpfloop.policies.endpoint.endpoint import probe
from lpfloop.policies.endpoint.transport import Connections
from lpfloop.policies.engines.engine import EngineError

ASKED = 5
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def answer_and_close(
    server: socket.socket, stands: threading.Semaphore, closed: threading.Semaphore
) -> None:
    """Answer one request on each connection, and close it while the client's loop is paused."""
    for _ in range(ASKED):
        connection, _ = server.accept()
        with connection:
            received = b""
            while not received.endswith(b"\r\n\r\n{}"):
                received += connection.recv(65536)
            connection.sendall(REPLY)
            stands.acquire()
        closed.release()


def test_closed_connection() -> None:
    stands, closed = threading.Semaphore(0), threading.Semaphore(0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(asyncio.new_event_loop()) as loop,
    ):
        serving = (server, stands, closed)
        threading.Thread(target=answer_and_close, args=serving, daemon=True).start()
        connections = Connections(f"http://127.0.0.1:{server.getsockname()[1]}/v1", None)
        try:
            for _ in range(ASKED):
                assert loop.run_until_complete(connections.post("embeddings", {})) == {}
                stands.release()
                closed.acquire()
        finally:
            loop.run_until_complete(connections.aclose())


def test_nobody_listens() -> None:
    with held_port() as port, pytest.raises(EngineError) as caught:
        probe(f"http://127.0.0.1:{port}/v1", None)
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "ConnectionRefusedError" in str(caught.value)
