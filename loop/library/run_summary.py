"""A short summary of a run, its state and results, as text and as HTML for a notebook."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from ..lake.trace.html_page import page_html
from ..lake.trace.page import Grid, Page, PageSection
from ..lake.trace.published_model import configuration
from ..lake.trace.terminal_page import page_text
from ..report.result_table import flat_table, result_table


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run: the models in each role, its state, table sizes, verdicts in words, results."""

    name: str
    folder: str
    state: str
    parts: Mapping[str, str]
    verdicts: tuple[str, ...]
    results: RunResults
    rows: Mapping[str, int]

    @property
    def page(self) -> Page:
        """The page to draw: a line for each fact, then the figures of all models."""
        parts = ", ".join(f"{part} {name}" for part, name in self.parts.items())
        rows = ", ".join(f"{count:,} {table}" for table, count in self.rows.items())
        lines = (parts, *self.verdicts, f"rows: {rows or 'none'}")
        return Page(
            title=f"run {self.name} in {self.folder}: {self.state}",
            sections=(
                PageSection(heading="", lines=tuple(filter(None, lines))),
                *([self._figures()] if self.results.rows else []),
            ),
        )

    def __str__(self) -> str:
        return page_text(self.page).rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page_html(self.page)

    def _figures(self) -> PageSection:
        """Return a line for each figure, overall and by task, with a column for each model."""
        table = result_table(self.results)
        columns, rows = flat_table(table)
        return PageSection(
            heading=table.caption + (f"; {table.note}" if table.note else ""),
            grid=Grid(columns=tuple(columns), rows=tuple(tuple(row) for row in rows), names=1),
        )


def run_summary(run: RunReader) -> RunSummary:
    """Return a summary of the run's current state."""
    return RunSummary(
        name=run.folder.name,
        folder=str(run.folder),
        state=_state(run.journal),
        parts=_parts(run),
        verdicts=tuple(_verdicts(run)),
        results=run_results(run),
        rows=_rows(run.journal),
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


def _rows(reader: Reader) -> Mapping[str, int]:
    """Return the number of rows of each table that is not empty."""
    counts = Counter[str]()
    for part in reader.parts():
        counts[part.table] += part.rows
    return {table: count for table, count in counts.items() if count}
