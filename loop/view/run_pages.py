"""The pages about runs: all of them, and one with its stages, results, verdicts and alarms."""

from contextlib import closing
from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ...stores.address import run_argument
from ...stores.journal_file import DamagedJournalError
from ...stores.journal_reader import JournalError
from ...stores.lake import RunReader, run_names
from ..daemon.status import daemon_of, overview
from ..lake.query.alarm_list import alarms, sentence
from ..lake.query.model_figures import results_by
from ..lake.query.model_names import checkpoints
from ..lake.query.runs import NoSuchRunError, open_run
from ..report.result_table import result_table
from ..report.run_answer import format_needs, run_answer
from ..report.write_report import FOLDER, PAGE
from .viewing import Viewing

SHUT_OFF = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
"""The policy of the report: it can be shown, without scripts, in another origin than the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run in the list of all; `problem` is the reason if it cannot be read."""

    name: str
    state: str = ""
    stage: str = ""
    iterations: int = 0
    rows: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RunPages:
    """The pages about runs."""

    viewing: Viewing

    def routes(self) -> list[Route]:
        """Return their addresses."""
        return [
            Route("/", self.all),
            Route("/live", self.all_live),
            Route("/runs/{run}", self.one),
            Route("/runs/{run}/live", self.one_live),
            Route("/runs/{run}/report", self.report),
        ]

    def all(self, request: Request) -> Response:
        """Show the runs of the lake."""
        del request
        version = self.viewing.version()
        now = self.viewing.cached("runs", version, self._runs)
        return self.viewing.page("runs.html", version=version, now=now)

    def all_live(self, request: Request) -> Response:
        """Return the changed parts of the list of runs."""
        return self.viewing.answer_live(request, "runs", self.viewing.version(), self._runs)

    def one(self, request: Request) -> Response:
        """Show a run."""
        with self.viewing.run(request) as run:
            name = run.folder.name
            version = self.viewing.version(name)
            now = self.viewing.cached(f"run {name}", version, lambda: self._run(run))
        return self.viewing.page("run.html", run=name, version=version, now=now)

    def one_live(self, request: Request) -> Response:
        """Return the changed parts of a run's page."""
        with self.viewing.run(request) as run:
            name = run.folder.name
            version = self.viewing.version(name)
            return self.viewing.answer_live(request, f"run {name}", version, lambda: self._run(run))

    def report(self, request: Request) -> Response:
        """Return the run's report, a complete page that is sandboxed from the viewer's."""
        with self.viewing.run(request) as run:
            file = run.folder / FOLDER / PAGE
            if not file.is_file():
                raise NoSuchRunError(
                    f"run {run.folder.name} does not have a report yet: `lpfloop report "
                    f"{run_argument(run.folder)}`"
                )
            return HTMLResponse(file.read_bytes(), headers={"Content-Security-Policy": SHUT_OFF})

    def _runs(self) -> Markup:
        lines = [run_line(self.viewing, name) for name in reversed(run_names(self.viewing.lake))]
        return self.viewing.draw("runs_now.html", lake=self.viewing.lake, lines=lines)

    def _run(self, run: RunReader) -> Markup:
        found = overview(run, None)
        results = results_by(run, "task")
        return self.viewing.draw(
            "run_now.html",
            run=run.folder.name,
            found=found,
            results=results,
            figures=result_table(results) if results.rows else None,
            answer=run_answer(run),
            needs=format_needs(run, found["daemon"]["state"]),
            alarms=[(alarm, sentence(alarm)) for alarm in alarms(run)],
            checkpoints=checkpoints(run),
            reported=(run.folder / FOLDER / PAGE).is_file(),
        )


def run_line(viewing: Viewing, name: str) -> RunLine:
    """Return a run in a line; one that cannot be read does not hide the others."""
    try:
        with closing(open_run(viewing.lake, name)) as run:
            stages = run.journal.stages()
            pending = [stage for stage in stages if stage.done < stage.planned]
            shown = pending[0] if pending else None
            return RunLine(
                name=name,
                state=daemon_of(run.journal).state,
                stage="" if shown is None else f"{shown.stage} {shown.done:,} of {shown.planned:,}",
                iterations=max((stage.iteration for stage in stages), default=0),
                rows=sum(file.rows for file in run.journal.files(table="candidates")),
            )
    except (JournalError, DamagedJournalError) as error:
        return RunLine(name=name, problem=str(error))
