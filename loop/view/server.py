"""Serving the viewer on the loopback address, until Ctrl-C."""

import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from ..lake.query.forms import FormError
from .access_check import AccessCheck, new_token
from .site import site
from .viewing import address

HOST = "127.0.0.1"
FAREWELL_S = 2
"""How long pages that are being drawn may take when the server ends."""
TAKEN = frozenset({errno.EADDRINUSE, errno.EACCES})


def serve(lake: Path, run: str | None, port: int, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `ready` gets the address to open.

    Raises:
        FormError: if the port cannot be opened.
    """
    with listening(port) as listener:
        port = listener.getsockname()[1]
        entrance = AccessCheck(site(lake), port, new_token())
        path = address("runs", run, token=entrance.token) if run else address(token=entrance.token)
        ready(f"http://{HOST}:{port}{path}")
        with suppress(KeyboardInterrupt):
            uvicorn.Server(server_config(entrance)).run(sockets=[listener])


def server_config(entrance: AccessCheck) -> uvicorn.Config:
    """Return the server's settings: HTTP only, and without a log, which would contain the token."""
    return uvicorn.Config(
        entrance,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=FAREWELL_S,
    )


def listening(port: int) -> socket.socket:
    """Return a socket that listens on a port of the loopback address; 0 picks a free one.

    Raises:
        FormError: if the port cannot be opened.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno not in TAKEN:
            raise
        raise FormError(
            f"--port {port}: cannot be used ({error.strerror}); without --port any free one is "
            "taken"
        ) from error
    return listener
