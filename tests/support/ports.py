"""Ports for servers that are started by their number, and take a while to bind it."""

import socket
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def held_port() -> Generator[int]:
    """Give a port that the system gives to nobody else within the block.

    A server that asks for it by its number, and that reuses addresses, gets it all the same.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
