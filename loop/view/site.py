"""The viewer as an application: its addresses, and its error pages."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

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
from ..lake.query.runs import NoSuchRunError
from ..lake.query.sql import SqlError
from ..lake.query.tables import ListError
from ..lake.trace.diff import DiffError
from ..lake.trace.find_row import NoSuchIdError
from . import judge_pages, pages
from .list_pages import SHOWN, list_page
from .viewing import Viewing

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
