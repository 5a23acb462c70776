"""The result of `lpfloop.open`: a run to read from Python, while it is written or afterwards."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from ...configs.load import resolve_config
from ...stores.address import lake_folder
from ...stores.journal_reader import JOURNAL, Reader
from ...stores.lake import RunReader
from ..daemon.status import daemon_of
from ..lake.imports import ANSWERS, IMPORTED
from ..lake.query.model_figures import RunResults, run_results
from ..lake.query.model_names import checkpoints
from ..lake.query.run_verdicts import run_verdict
from ..lake.query.runs import NoSuchRunError, open_run
from ..lake.query.sql import TIMEOUT, query
from ..lake.trace.diff import Diff, DiffRequest, diff
from ..lake.trace.find_row import find
from ..lake.trace.page import Grid, Page, PageSection
from ..lake.trace.published_model import configuration
from ..lake.trace.show import ShownPage, show_row
from ..report.result_table import flat_table, result_table
from .run_measures import RunMeasures


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


class ReadOnlyRun(RunMeasures):
    """A run, read-only. Each call sees all units committed by then, and only whole ones."""

    closed = False

    def __enter__(self) -> Self:
        """Return the run; leaving closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"lpfloop.open({str(self.folder)!r}), closed" if self.closed else str(self.summary())

    def close(self) -> None:
        """Close the run's journal."""
        self.closed = True
        self._reader.close()

    def summary(self) -> ShownPage:
        """Return how the run stands: state, parts, verdicts in words, results, sizes of tables."""
        return run_summary(self._reader)

    @property
    def config(self) -> dict[str, Any]:
        """The run's configuration as plain data, without secrets."""
        return resolve_config(configuration(self._reader))

    def sql(self, text: str, *, timeout: float = TIMEOUT) -> pl.DataFrame:
        """Answer a SELECT over this run's tables, by DuckDB.

        Raises:
            SqlError: if it cannot be answered, or computes for over `timeout` seconds (0: no
                limit).
        """
        return query(self.lake, text, (self.name,), timeout=timeout)

    def show(self, identity: str, *, iteration: int | None = None) -> ShownPage:
        """Return the row of an id with all that belongs to it.

        Raises:
            NoSuchIdError: if the run does not have it.
        """
        return show_row(self._reader, find(self._reader, identity), iteration)

    def diff(
        self,
        before: int | None = None,
        after: int | None = None,
        *,
        task: str | None = None,
        metric: str | None = None,
        other: "ReadOnlyRun | None" = None,
    ) -> Diff:
        """Compare two iterations prompt by prompt; by default M_0 and the last that was measured.

        Raises:
            DiffError: if they cannot be compared.
        """
        request = DiffRequest(before=before, after=after, task=task, metric=metric)
        second = None if other is None else other._reader  # noqa: SLF001 -- of the same class
        return diff(self._reader, request, second)


def lake_at(lake: str | Path | None) -> Path:
    """Return the folder of a lake: by default `$LPFLOOP_LAKE`, or `./lake`."""
    return lake_folder(str(lake or os.environ.get("LPFLOOP_LAKE") or "lake"))


def open_folder_or_name(run: str | Path | None, lake: str | Path | None) -> ReadOnlyRun:
    """Open the run in the folder `run`, or of that name in a lake.

    Raises:
        NoSuchRunError: if the run does not exist.
    """
    if run is not None and lake is None and (Path(run) / JOURNAL).is_file():
        return ReadOnlyRun(RunReader(Path(run)))
    if run is not None and lake is None and os.sep in str(run):
        raise NoSuchRunError(f"no run at {run}: give a run's folder, or its name and lake=")
    return ReadOnlyRun(open_run(lake_at(lake), None if run is None else str(run)))
