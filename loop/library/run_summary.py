"""A short summary of a run, its state and results."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...configs.load import resolve_config
from ...stores.journal_reader import Reader
from ...stores.lake import RunReader
from ..daemon.status import daemon_of
from ..lake.imports import ANSWERS, IMPORTED
from ..lake.query.model_figures import RunResults, run_results
from ..lake.query.model_names import checkpoints
from ..lake.query.run_verdicts import run_verdict
from ..lake.query.runs import NoSuchRunError
from ..lake.trace.page import Grid, Page, PageSection
from ..lake.trace.published_model import configuration
from ..lake.trace.show import ShownPage
from ..report.result_table import flat_table, result_table


def run_summary(run: RunReader) -> ShownPage:
    """Return a summary of the run's current state: a line for each fact, then the figures."""
    results = run_results(run)
    facts: dict[str, Any] = {
        "state": _state(run.journal),
        "parts": _parts(run),
        "verdicts": list(_verdicts(run)),
        "rows": _rows(run.journal),
    }
    parts = ", ".join(f"{part} {name}" for part, name in facts["parts"].items())
    rows = ", ".join(f"{count:,} {table}" for table, count in facts["rows"].items())
    lines = filter(None, (parts, *facts["verdicts"], f"rows: {rows or 'none'}"))
    page = Page(
        title=f"run {run.folder.name} in {run.folder}: {facts['state']}",
        sections=(
            PageSection(heading="", lines=tuple(lines)),
            *([_figures(results)] if results.rows else []),
        ),
    )
    names = {"name": run.folder.name, "folder": str(run.folder)}
    return ShownPage(page, {**names, **facts, "results": results.document})


def _figures(results: RunResults) -> PageSection:
    """Return a line for each figure, overall and by task, with a column for each model."""
    table = result_table(results)
    columns, rows = flat_table(table)
    return PageSection(
        heading=table.caption + (f"; {table.note}" if table.note else ""),
        grid=Grid(columns=tuple(columns), rows=tuple(tuple(row) for row in rows), names=1),
    )


def _state(reader: Reader) -> str:
    """Return whether a process works on the run, or how the run ended."""
    state, ends = daemon_of(reader).state, reader.events("end")
    if state.startswith("ended") and ends:
        return str(ends[-1])
    return (
        f"{state}, {sum(stage.planned - stage.done for stage in reader.stages()):,} units pending"
    )


def _parts(run: RunReader) -> dict[str, str]:
    if any(run.journal.meta(fact) is not None for fact in (IMPORTED, ANSWERS)):
        return {}
    config: dict[str, Any] = resolve_config(configuration(run))
    return {
        "recipe": str(config["recipe"]["name"]),
        **{part: str(config[part]["model"]) for part in ("policy", "critic", "reward")},
    }


def _verdicts(run: RunReader) -> Iterator[str]:
    """Yield the reason of each iteration's verdict."""
    try:
        found = run_verdict(run, checkpoints(run))
    except NoSuchRunError:
        return
    for iteration in found.iterations:
        if iteration.standing is not None:
            yield iteration.standing.reason


def _rows(reader: Reader) -> dict[str, int]:
    """Return the number of rows of each table that is not empty."""
    counts = Counter[str]()
    for part in reader.parts():
        counts[part.table] += part.rows
    return {table: count for table, count in counts.items() if count}
