"""The viewer as an application: its addresses, and its error pages."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
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
from .diff_pages import DiffPages
from .drawing import STATIC
from .judge_pages import JudgePages
from .list_pages import ListPages
from .prompt_pages import PromptPages
from .run_pages import RunPages
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


def site(lake: Path) -> Starlette:
    """Return the pages over a lake, unguarded: see `entrance`."""
    viewing = Viewing(lake)
    return Starlette(
        routes=[
            Mount("/static", StaticFiles(directory=STATIC)),
            *RunPages(viewing).routes(),
            *ListPages(viewing).routes(),
            *DiffPages(viewing).routes(),
            *PromptPages(viewing).routes(),
            *JudgePages(viewing).routes(),
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
