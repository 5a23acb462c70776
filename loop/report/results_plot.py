"""The results of a run's models, in all, by task and by family: a fall is seen at once."""

from collections.abc import Iterator, Sequence

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.panels import Intervals, Lines, Panel, PlottedValue, Series
from ..lake.query.figures import deciding_of, figure_values, shown_split
from ..lake.query.model_figures import ModelFigure, RunResults, run_results
from ..lake.query.told_figures import figure_label, scaled
from .report_plot import ReportPlot, names_of

FAMILIES = 16
"""So many families are drawn: those that fell most, and of the others those that rose most."""
RISEN = 5
FALLEN = 6
NOTHING = "no model of the run was measured: nothing was evaluated yet, or the run trains none"


def results_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the deciding figure by task and family, with intervals, for each iteration."""
    found = [each for each in map(deciding_results, runs) if each.rows]
    named = [each for each in found if any(row.scope == "family" for row in each.rows)]
    families = [_families(each, several=len(found) > 1) for each in named]
    notes = [text for _, text in families if text]
    panels = [*_over_iterations(found), *(panel for panel, _ in families)]
    return ReportPlot(
        name="results",
        title="Results by task and family",
        reading=(
            "Each line is a task, with the band in which its value lies with 95 % confidence: a "
            "line that falls has become worse; of the families, which are compared prompt by "
            "prompt, those whose bar ends left of 0 have surely lost, at the level of the verdict "
            "(a dot without a bar: too few clusters of prompts for bounds)."
        ),
        command=f"lpfloop status {names_of(runs)[0]} --by {'family' if named else 'task'} --wide",
        rows=_rows(found),
        panels=panels,
        missing=NOTHING,
        notes=notes,
    )


def deciding_results(run: RunReader) -> RunResults:
    """Return the figure by which a run's models are compared: in all, by task, and by family."""
    split = shown_split(run)
    figure = None if split is None else deciding_of(run, split)
    if split is None or figure is None:
        return RunResults(run=run.folder.name, split=split, models=(), rows=())
    families = figure_values(run, split, figure.name)["family"]
    named = families.null_count() < len(families)
    scopes = ("all", "task", "family") if named else ("all", "task")
    return run_results(run, split=split, by=scopes, figure=figure.name)


def _rows(found: Sequence[RunResults]) -> pl.DataFrame:
    frames = [each.frame.insert_column(0, pl.lit(each.run).alias("run")) for each in found]
    return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()


def _over_iterations(found: Sequence[RunResults]) -> Iterator[Panel]:
    """Give a line for each task of one run, or a panel for each task with a line for each run."""
    if len(found) == 1:
        yield _panel("all prompts, and each task", _tasks(found[0]), found)
        yield from _fallen(found[0])
        return
    names = dict.fromkeys(name for each in found for name in _by_name(each))
    for name in names:
        parts = [(each.run, _by_name(each).get(name, [])) for each in found]
        yield _panel(name, [(run, rows) for run, rows in parts if rows], found)


def _fallen(results: RunResults) -> Iterator[Panel]:
    """Yield the families that fell most below their earlier results, over the iterations."""
    families: dict[str, list[ModelFigure]] = {}
    for row in results.rows:
        if row.scope == "family":
            families.setdefault(row.name, []).append(row)
    falls = {name: max(r.value for r in own) - own[-1].value for name, own in families.items()}
    worst = sorted((name for name in falls if falls[name] > 0), key=lambda n: (-falls[n], n))
    if worst and len(results.models) > 1:
        parts = [(name, families[name]) for name in worst[:FALLEN]]
        yield _panel("families that fell most", parts, [results], banded=False)


def _panel(
    title: str,
    parts: Sequence[tuple[str, Sequence[ModelFigure]]],
    found: Sequence[RunResults],
    *,
    banded: bool = True,
) -> Panel:
    figure, split = found[0].rows[0].figure, found[0].split
    return Lines(
        series=[_series(label, rows, banded=banded) for label, rows in parts],
        title=title,
        x_label="iteration",
        y_label=f"{figure_label(figure)}, {split}",
        whole_x=True,
    )


def _tasks(results: RunResults) -> list[tuple[str, list[ModelFigure]]]:
    parts = list(_by_name(results).items())
    return parts if len(parts) > 2 else parts[:1]  # noqa: PLR2004 -- one task is all of them


def _by_name(results: RunResults) -> dict[str, list[ModelFigure]]:
    found: dict[str, list[ModelFigure]] = {}
    for row in results.rows:
        if row.scope != "family":
            found.setdefault(row.name or "all", []).append(row)
    return found


def _series(label: str, rows: Sequence[ModelFigure], *, banded: bool) -> Series:
    sure = banded and all(row.low is not None and row.high is not None for row in rows)
    return Series(
        label=label,
        x=[row.iteration for row in rows],
        y=[scaled(row.figure, row.value) for row in rows],
        low=[scaled(row.figure, row.low or 0.0) for row in rows] if sure else (),
        high=[scaled(row.figure, row.high or 0.0) for row in rows] if sure else (),
    )


def _families(results: RunResults, *, several: bool) -> tuple[Panel, str]:
    """Return how much each family has changed, the worst first, and a note on omitted ones."""
    told = results.told.iteration
    rows = [r for r in results.rows if r.scope == "family" and r.iteration == told]
    rows.sort(key=lambda row: (row.change or 0.0, row.name))
    shown = rows if len(rows) <= FAMILIES else [*rows[: FAMILIES - RISEN], *rows[-RISEN:]]
    left_out = len(rows) - len(shown)
    since = f"M_{told} since M_{results.models[0].iteration}, by family"
    panel = Intervals(
        estimates=[_change(row) for row in shown],
        title=f"{results.run}: {since}" if several else since,
        x_label=f"change of {figure_label(results.rows[0].figure)}",
        level=0.0,
    )
    noun = f"{left_out} families of {results.run} that changed less are not drawn"
    return panel, noun if left_out else ""


def _change(row: ModelFigure) -> PlottedValue:
    change = row.change or 0.0
    low = change if row.change_low is None else row.change_low
    high = change if row.change_high is None else row.change_high
    return PlottedValue(
        label=f"{row.name} ({row.n})",
        value=scaled(row.figure, change),
        low=scaled(row.figure, low),
        high=scaled(row.figure, high),
    )
