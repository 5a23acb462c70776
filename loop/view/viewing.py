"""What all pages share: the lake, the templates, addresses, cached results of unchanged runs."""

import hashlib
import re
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...stores.journal_reader import JOURNAL
from ...stores.lake import RunReader, run_names
from ..daemon.control import alive
from ..data.text import duration
from ..lake.query.runs import open_run
from ..lake.query.tables import ListError
from ..report.templates import templates

KEPT = 64
"""So many things are kept as they were made last."""
T = TypeVar("T")
NUMBER = re.compile(r"-?[0-9]{1,9}")


def address(*parts: object, **query: object) -> str:
    """Return the address of a page, each part of its path and its query quoted.

    Values that are None or empty are left out of the query.
    """
    path = "/".join(quote(str(part), safe="") for part in parts)
    pairs = [(name, str(value)) for name, value in query.items() if value not in (None, "")]
    return f"/{path}" + (f"?{urlencode(pairs)}" if pairs else "")


def count(number: float | None) -> str:
    """Return a number as people read it; empty for 0 or None."""
    return f"{number:,}" if number else ""


def number(name: str, text: str | None) -> int | None:
    """Return a whole number; None for None.

    Raises:
        ListError: if it is something else.
    """
    if text is not None and not NUMBER.fullmatch(text):
        raise ListError(f"{name} {text!r} is not a whole number")
    return None if text is None else int(text)


def _templates() -> Environment:
    """Return the templates; values are inserted as text, never as markup."""
    environment = templates(Path(__file__).parent / "templates")
    environment.globals.update(address=address)
    environment.filters.update(count=count, duration=duration)
    return environment


@dataclass(slots=True)
class Kept:
    """The last result under a name; its lock lets one request compute it at a time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    version: str | None = None
    made: Any = None


@dataclass(frozen=True, slots=True)
class Viewing:
    """The lake that is looked at; its methods may be called from several threads."""

    lake: Path
    templates: Environment = field(default_factory=_templates)
    _kept: dict[str, Kept] = field(default_factory=dict[str, Kept])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def run(self, request: Request) -> Generator[RunReader]:
        """Open the run that an address names; it is read as of the moment of opening.

        Each request has a separate connection to the journal: opening takes a millisecond, and a
        connection that stayed open would keep `lpfloop lake gc` from removing anything.

        Raises:
            NoSuchRunError: if the run does not exist.
        """
        with closing(open_run(self.lake, request.path_params["run"])) as reader:
            yield reader

    def page(self, template: str, status: int = 200, **values: object) -> HTMLResponse:
        """Return a whole page."""
        return HTMLResponse(self.draw(template, **values), status)

    def draw(self, template: str, **values: object) -> Markup:
        """Return a template rendered with values."""
        # The template has escaped its values.
        return Markup(self.templates.get_template(template).render(**values))  # noqa: S704

    def cached(self, name: str, version: str, make: Callable[[], T]) -> T:
        """Return the result of `make`, called again only if `version` has changed."""
        with self._lock:
            kept = self._kept.pop(name, None) or Kept()
            self._kept[name] = kept
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        with kept.lock:
            if kept.version != version:
                kept.made, kept.version = make(), version
            return kept.made

    def answer_live(
        self, request: Request, name: str, version: str, draw: Callable[[], Markup]
    ) -> Response:
        """Answer the question whether a part of a page has changed, with the part if it has."""
        tag = {"ETag": f'"{version}"'}
        if request.headers.get("if-none-match") == tag["ETag"]:
            return Response(status_code=304, headers=tag)
        return HTMLResponse(self.cached(name, version, draw), headers=tag)

    def version(self, *runs: str) -> str:
        """Return a version that changes as soon as one of these runs does, or any without names."""
        digest = hashlib.sha256()
        for name in runs or run_names(self.lake):
            folder = self.lake / "runs" / name
            digest.update(f"{name} {alive(folder)}".encode())
            for file in (JOURNAL, f"{JOURNAL}-wal"):
                with suppress(FileNotFoundError):
                    found = (folder / file).stat()
                    digest.update(f" {found.st_size} {found.st_mtime_ns}".encode())
        return digest.hexdigest()[:16]
