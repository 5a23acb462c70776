"""What a run is and how it stands, short enough to look at: as text, and as HTML for a notebook."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...configs.load import resolved
from ...stores.journal_reader import Reader
from ...stores.lake import RunReader
from ..daemon.status import daemon_of
from ..data.sanitize import one_line
from ..lake.imports import ANSWERS, IMPORTED
from ..lake.query.model_figures import ModelFigure, RunResults, run_results
from ..lake.query.model_names import checkpoints
from ..lake.query.run_verdicts import run_verdict
from ..lake.query.runs import NoSuchRunError
from ..lake.query.told_figures import (
    figure_label,
    split_name,
    told_change,
    told_levels,
    told_of,
)
from ..lake.trace.html_page import safe
from ..lake.trace.published_model import configuration
from .first_rows import html_table

LINE = 300
FIGURE = "figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run: what plays which part, its state, its tables' sizes, verdicts in words, results."""

    name: str
    folder: str
    state: str
    parts: Mapping[str, str]
    verdicts: tuple[str, ...]
    results: RunResults
    rows: Mapping[str, int]

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything but the results."""
        parts = ", ".join(f"{part} {name}" for part, name in self.parts.items())
        rows = ", ".join(f"{count:,} {table}" for table, count in self.rows.items())
        head = f"run {self.name} in {self.folder}: {self.state}"
        lines = (head, parts, *self.verdicts, f"rows: {rows or 'none'}", *self._about_results())
        return tuple(one_line(line, limit=LINE) for line in lines if line)

    def _about_results(self) -> Iterator[str]:
        """Say on which prompts the results are, and how sure their changes are."""
        if self.results.split is None or not self.results.rows:
            return
        told = self.results.told.iteration
        levels = told_levels(row for row in self.results.rows if row.iteration == told)
        yield f"results on {split_name(self.results.split)}" + (f"; {levels}" if levels else "")

    def __str__(self) -> str:
        columns, rows = self._table()
        widths = [max(len(line[n]) for line in (columns, *rows)) for n in range(len(columns))]
        table = [
            "  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip()
            for line in (columns, *rows)
        ]
        return "\n".join((*self.lines, *(table if rows else ())))

    __repr__ = __str__

    @property
    def html(self) -> str:
        """The same as HTML."""
        columns, rows = self._table()
        told = "".join(f"<div>{safe(line)}</div>" for line in self.lines)
        return f'<div class="lpfloop">{told}{html_table(columns, rows) if rows else ""}</div>'

    def _repr_html_(self) -> str:
        return self.html

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return a line for each figure of all prompts, and of each task, and a column a model."""
        models = self.results.models
        lines: dict[tuple[str, str], dict[int, ModelFigure]] = {}
        for row in self.results.rows:
            lines.setdefault((row.name or row.scope, row.figure), {})[row.iteration] = row
        columns = ["prompts", FIGURE, *(f"M_{model.iteration}" for model in models), "change"]
        return columns, [
            [
                one_line(name, limit=LINE),
                figure_label(figure),
                *(told_of(of.get(model.iteration)) for model in models),
                told_change(of.get(self.results.told.iteration)),
            ]
            for (name, figure), of in lines.items()
        ]


def run_summary(run: RunReader) -> RunSummary:
    """Return how a run stands by now."""
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
    """Say whether somebody works on the run, or how it ended."""
    state, ends = daemon_of(reader).state, reader.events("end")
    if state.startswith("ended") and ends:
        return str(ends[-1])
    return f"{state}, {sum(stage.planned - stage.done for stage in reader.stages()):,} units owed"


def _parts(run: RunReader) -> dict[str, str]:
    """Return what plays the parts of a run of the loop."""
    if any(run.journal.meta(fact) is not None for fact in (IMPORTED, ANSWERS)):
        return {}
    config: dict[str, Any] = resolved(configuration(run))
    return {
        "recipe": str(config["recipe"]["name"]),
        **{part: str(config[part]["model"]) for part in ("policy", "critic", "reward")},
    }


def _verdicts(run: RunReader) -> Iterator[str]:
    """Yield what was decided of each policy, in words."""
    try:
        found = run_verdict(run, checkpoints(run))
    except NoSuchRunError:
        return
    for iteration in found.iterations:
        if iteration.standing is not None:
            yield iteration.standing.reason


def _rows(reader: Reader) -> Mapping[str, int]:
    """Return how many rows each table has that has any."""
    counts = Counter[str]()
    for part in reader.parts():
        counts[part.table] += part.rows
    return {table: count for table, count in counts.items() if count}
