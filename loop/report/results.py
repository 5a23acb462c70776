"""The results of a run's models: the deciding figure by task, and each family's change."""

from collections.abc import Iterator

from ...stores.lake import RunReader
from ..evaluation.plots import Intervals, Lines, Panel, PlottedValue, Series
from ..lake.query.figures import deciding_of, figure_values, shown_split
from ..lake.query.format_figures import figure_label, scale_value
from ..lake.query.model_figures import ModelFigure, RunResults, run_results
from .section import Section

FAMILIES, RISEN = 16, 5
"""So many families are drawn: those that fell most, and of the others those that rose most."""


def results_section(run: RunReader) -> Section:
    """Return the deciding figure by task over the iterations, and the families' changes."""
    found = deciding_results(run)
    return Section(
        name="results",
        title="Results: by task and family",
        reading=(
            "Each line is a task in its band of 95 % confidence. Families are compared prompt by "
            "prompt, at the level of the verdict: one whose bar ends left of 0 is significantly "
            "worse. A dot without a bar has too few clusters of prompts for bounds."
        ),
        command=f"lpfloop status {run.folder.name} --by family --wide",
        tables={"results": found.frame},
        panels=list(_panels(found)) if found.rows else (),
        missing="no model of the run was measured yet",
    )


def deciding_results(run: RunReader) -> RunResults:
    """Return the figure by which a run's models are compared: in all, by task, and by family."""
    split = shown_split(run)
    figure = None if split is None else deciding_of(run, split)
    if split is None or figure is None:
        return RunResults(run=run.folder.name, split=split, models=(), rows=())
    families = figure_values(run, split, figure)["family"]
    named = families.null_count() < len(families)
    scopes = ("all", "task", "family") if named else ("all", "task")
    return run_results(run, split=split, by=scopes, figure=figure)


def result_line(label: str, rows: list[ModelFigure]) -> Series:
    """Return a figure over the iterations as a line, with its band if all intervals are known."""
    sure = all(row.low is not None and row.high is not None for row in rows)
    return Series(
        label=label,
        x=[row.iteration for row in rows],
        y=[scale_value(row.figure, row.value) for row in rows],
        low=[scale_value(row.figure, row.low or 0.0) for row in rows] if sure else (),
        high=[scale_value(row.figure, row.high or 0.0) for row in rows] if sure else (),
    )


def _panels(results: RunResults) -> Iterator[Panel]:
    parts: dict[str, list[ModelFigure]] = {}
    for row in results.rows:
        if row.scope != "family":
            parts.setdefault(row.name or "all", []).append(row)
    # A single task is all of them.
    drawn = list(parts.items()) if len(parts) > 2 else list(parts.items())[:1]  # noqa: PLR2004
    yield Lines(
        series=[result_line(label, rows) for label, rows in drawn],
        title="All prompts, and each task",
        x_label="iteration",
        y_label=f"{figure_label(results.rows[0].figure)}, {results.split}",
        whole_x=True,
    )
    reported = results.reported.iteration
    families = [r for r in results.rows if r.scope == "family" and r.iteration == reported]
    if families:
        yield _families(results, families)


def _families(results: RunResults, rows: list[ModelFigure]) -> Panel:
    """Return how much each family has changed, the worst first."""
    rows.sort(key=lambda row: (row.change or 0.0, row.name))
    shown = rows if len(rows) <= FAMILIES else [*rows[: FAMILIES - RISEN], *rows[-RISEN:]]
    some = f" ({len(shown)} of {len(rows)})" if len(shown) < len(rows) else ""
    after = results.reported.iteration
    return Intervals(
        estimates=[_change(row) for row in shown],
        title=f"Families, M_{after} since M_{results.models[0].iteration}{some}",
        x_label=f"change of {figure_label(results.rows[0].figure)}",
        level=0.0,
    )


def _change(row: ModelFigure) -> PlottedValue:
    change = row.change or 0.0
    low = change if row.change_low is None else row.change_low
    high = change if row.change_high is None else row.change_high
    return PlottedValue(
        label=f"{row.name} ({row.n})",
        value=scale_value(row.figure, change),
        low=scale_value(row.figure, low),
        high=scale_value(row.figure, high),
    )
