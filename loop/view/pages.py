"""The pages on runs, on one run, on one prompt, and on one iteration against another."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...stores.address import run_argument
from ...stores.journal_file import DamagedJournalError
from ...stores.journal_reader import JournalError
from ...stores.lake import RunReader, run_names
from ..daemon.status import daemon_of, overview
from ..data.splits import HELD_OUT
from ..lake.query.alarm_list import alarms, sentence
from ..lake.query.duckdb_rows import among
from ..lake.query.figures import shown_split
from ..lake.query.format_figures import (
    figure_label,
    figure_name,
    format_bounds,
    format_difference,
    format_level,
    format_value,
)
from ..lake.query.model_figures import results_by
from ..lake.query.model_names import checkpoints
from ..lake.query.runs import NoSuchRunError, open_run
from ..lake.query.tables import FEW, rows
from ..lake.trace.diff import DiffRequest, diff
from ..lake.trace.find_row import Found, find
from ..lake.trace.page import word_diff
from ..lake.trace.story import prompt_story
from ..lake.trace.story_page import story_page
from ..report.result_table import result_table
from ..report.run_answer import format_needs, run_answer
from ..report.write_report import FOLDER, PAGE
from .viewing import Viewing, address, number

MOST = 50
"""So many changed prompts are listed."""
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


def all_runs(viewing: Viewing, request: Request) -> Response:
    """Show the runs of the lake."""
    del request
    version = viewing.version()
    now = viewing.cached("runs", version, lambda: _runs(viewing))
    return viewing.page("runs.html", version=version, now=now)


def all_runs_live(viewing: Viewing, request: Request) -> Response:
    """Return the changed parts of the list of runs."""
    return viewing.answer_live(request, "runs", viewing.version(), lambda: _runs(viewing))


def one_run(viewing: Viewing, request: Request) -> Response:
    """Show a run."""
    with viewing.run(request) as run:
        name = run.folder.name
        version = viewing.version(name)
        now = viewing.cached(f"run {name}", version, lambda: _run(viewing, run))
    return viewing.page("run.html", run=name, version=version, now=now)


def one_run_live(viewing: Viewing, request: Request) -> Response:
    """Return the changed parts of a run's page."""
    with viewing.run(request) as run:
        name = run.folder.name
        version = viewing.version(name)
        return viewing.answer_live(request, f"run {name}", version, lambda: _run(viewing, run))


def report(viewing: Viewing, request: Request) -> Response:
    """Return the run's report, a complete page that is sandboxed from the viewer's."""
    with viewing.run(request) as run:
        file = run.folder / FOLDER / PAGE
        if not file.is_file():
            raise NoSuchRunError(
                f"run {run.folder.name} does not have a report yet: `lpfloop report "
                f"{run_argument(run.folder)}`"
            )
        return HTMLResponse(file.read_bytes(), headers={"Content-Security-Policy": SHUT_OFF})


def _runs(viewing: Viewing) -> Markup:
    lines = [run_line(viewing, name) for name in reversed(run_names(viewing.lake))]
    return viewing.draw("runs_now.html", lake=viewing.lake, lines=lines)


def _run(viewing: Viewing, run: RunReader) -> Markup:
    found = overview(run, None)
    results = results_by(run, "task")
    return viewing.draw(
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


def one_prompt(viewing: Viewing, request: Request) -> Response:
    """Show a prompt with its candidates, in one iteration."""
    prompt = request.path_params["prompt"]
    requested = number("iteration", request.query_params.get("iteration"))
    with viewing.run(request) as run:
        story = prompt_story(run, Found(kind="prompt", id=prompt, prompt_id=prompt))
    iteration = story.shown_iteration if requested is None else requested
    return viewing.page(
        "prompt.html",
        run=story.run,
        prompt=prompt,
        iterations=story.iterations,
        iteration=iteration,
        sections=story_page(story, iteration).sections,
    )


def one_row(viewing: Viewing, request: Request) -> Response:
    """Lead to the place of a row on its prompt's page, or of a checkpoint on its run's."""
    with viewing.run(request) as run:
        found = find(run, request.path_params["row"])
        return RedirectResponse(_place(run, found), 303)


def _place(run: RunReader, found: Found) -> str:
    name = run.folder.name
    if found.prompt_id is None:
        return f"{address('runs', name)}#{found.id}"
    if found.kind == "prompt":
        return address("runs", name, "prompts", found.prompt_id)
    iteration = prompt_story(run, found).shown_iteration
    return f"{address('runs', name, 'prompts', found.prompt_id, iteration=iteration)}#{found.id}"


def changes(viewing: Viewing, request: Request) -> Response:
    """Show how the answers of one iteration changed until another."""
    query = request.query_params
    with viewing.run(request) as run:
        request_of = DiffRequest(
            before=number("from", query.get("from") or None),
            after=number("to", query.get("to") or None),
            benchmark=shown_split(run, query.get("split") or None) or HELD_OUT,
        )
        found = diff(run, request_of)
        shown = found.changes.head(MOST)
        answers = texts(run, shown)
        rows = [_with_spans(row, answers) for row in shown.iter_rows(named=True)]
        iterations = sorted({stage.iteration for stage in run.journal.stages()})
        name = run.folder.name
    return viewing.page(
        "diff.html",
        run=name,
        found=found,
        wanted=request_of,
        summary=[_add_texts(row) for row in found.summary.to_dicts()],
        rows=rows,
        iterations=iterations,
        total=found.changes.height,
    )


def _add_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a row of the summary the texts that a page shows."""
    figure = row["metric"]
    level = row["level"]
    return {
        **row,
        "label": figure_label(figure),
        "told_before": format_value(figure, row["before"]),
        "told_after": format_value(figure, row["after"]),
        "told_change": format_difference(figure, row["difference"]),
        "told_bounds": format_bounds(figure, row["low"], row["high"]),
        "told_level": "" if level is None else f"one-sided level {format_level(level)} per bound",
    }


def texts(run: RunReader, shown: pl.DataFrame) -> dict[str, str]:
    """Return the answers of both sides to prompts that changed, by id."""
    sides = [shown[f"candidate_{side}"].drop_nulls() for side in ("before", "after")]
    where = [
        among("prompt_id", shown["prompt_id"].unique().to_list()),
        among("candidate_id", pl.concat(sides).to_list()),
    ]
    found = rows(run, "candidates", columns=("candidate_id", "text"), where=where, limit=FEW)
    return dict(found.collect().iter_rows())


def _with_spans(row: Mapping[str, Any], answers: Mapping[str, str]) -> dict[str, Any]:
    """Return a changed prompt with its second answer as changes of the first."""
    before, after = (answers.get(row[f"candidate_{side}"], "") for side in ("before", "after"))
    return {**row, "label": figure_name(row["metric"]), "spans": word_diff(before, after)}
