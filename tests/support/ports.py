"""Ports for servers that must be told theirs before they are started."""

import socket
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def held_port() -> Generator[int]:
    """Give a free port of loopback, which the system gives to nobody else meanwhile.

    A server that may use an address again, as servers do, gets it all the same.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
