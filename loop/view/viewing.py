"""The state that all pages share: the lake, the templates, and cached results of unchanged runs."""

import hashlib
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...stores.journal_reader import JOURNAL
from ...stores.lake import RunReader, run_names
from ..daemon.control import alive
from ..lake.query.runs import open_run
from .drawing import render_template, templates

KEPT = 64
"""So many things are kept as they were made last."""
T = TypeVar("T")


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
    templates: Environment = field(default_factory=templates)
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
        return render_template(self.templates, template, **values)

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
