"""The viewer: its addresses and error pages, served on the loopback address until Ctrl-C."""

import errno
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...configs.mistakes import ConfigError
from ...stores.annotation_ledger import LedgerError
from ...stores.journal_file import DamagedJournalError
from ...stores.journal_reader import JournalError
from ...stores.lake import RunNameError
from ...stores.sealed import DamagedError
from ..data.files import InputError
from ..lake.query.figures import NotMeasuredError
from ..lake.query.forms import FormError
from ..lake.query.runs import NoSuchRunError
from ..lake.query.sql import SqlError
from ..lake.query.tables import ListError
from ..lake.trace.diff import DiffError
from ..lake.trace.find_row import NoSuchIdError
from . import judge_pages, pages
from .access_check import AccessCheck, new_token
from .list_pages import SHOWN, list_page
from .viewing import Viewing, address

NOT_THERE = (NoSuchRunError, NoSuchIdError, RunNameError)
WRONG = (
    ListError,
    SqlError,
    DiffError,
    NotMeasuredError,
    InputError,
    LedgerError,
)
UNREADABLE = (JournalError, DamagedJournalError, DamagedError, ConfigError)


Page = Callable[[Viewing, Request], Any]
READ: Mapping[str, Page] = {
    "/": pages.all_runs,
    "/live": pages.all_runs_live,
    "/runs/{run}": pages.one_run,
    "/runs/{run}/live": pages.one_run_live,
    "/runs/{run}/report": pages.report,
    "/runs/{run}/diff": pages.changes,
    **{f"/runs/{{run}}/{table}": partial(list_page, table) for table in SHOWN},
    # An id may hold any character, slashes too.
    "/runs/{run}/prompts/{prompt:path}": pages.one_prompt,
    "/runs/{run}/rows/{row:path}": pages.one_row,
    "/runs/{run}/judge": judge_pages.choose,
    "/runs/{run}/judge/item": judge_pages.item,
    "/runs/{run}/judge/live": judge_pages.live,
}
WRITE: Mapping[str, Page] = {
    "/runs/{run}/judge/item": judge_pages.act,
    "/runs/{run}/judge/commit": judge_pages.commit,
}


def site(lake: Path) -> Starlette:
    """Return the pages over a lake, unguarded: see `AccessCheck`."""
    viewing = Viewing(lake)
    return Starlette(
        routes=[
            Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
            *(Route(path, partial(page, viewing)) for path, page in READ.items()),
            *(
                Route(path, partial(page, viewing), methods=["POST"])
                for path, page in WRITE.items()
            ),
        ],
        exception_handlers=_handlers(viewing),
    )


def _handlers(viewing: Viewing) -> Mapping[Any, Callable[[Request, Exception], Response]]:
    sentence = partial(_sentence, viewing)
    return {
        HTTPException: partial(_refusal, viewing),
        **dict.fromkeys(NOT_THERE, partial(sentence, 404)),
        **dict.fromkeys(WRONG, partial(sentence, 400)),
        **dict.fromkeys(UNREADABLE, partial(sentence, 500)),
    }


def _sentence(viewing: Viewing, status: int, request: Request, error: Exception) -> Response:
    """Return the page for an error whose message is a sentence for people."""
    del request
    return viewing.page("problem.html", status, said=str(error))


def _refusal(viewing: Viewing, request: Request, error: Exception) -> Response:
    """Return the page for an address that leads nowhere."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"there is no page {request.url.path}" if status == 404 else str(error)  # noqa: PLR2004
    return viewing.page("problem.html", status, said=message)


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
