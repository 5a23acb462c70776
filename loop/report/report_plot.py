"""One plot of a report: its panels, its rows, and how to read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from ...stores.lake import RunReader
from ..evaluation.panels import Panel


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPlot:
    """A plot with the rows that it is drawn from; `missing` is the reason if it is empty."""

    name: str
    """The stem of its files, and its place in the page."""
    title: str
    reading: str
    """One sentence: how it is read."""
    command: str
    """The command that gives its rows, for one of the runs."""
    rows: pl.DataFrame
    panels: Sequence[Panel]
    missing: str
    notes: Sequence[str] = ()
    """Sentences below the plot: which data was left out, and why."""


PlotMaker = Callable[[Sequence[RunReader]], ReportPlot]
"""Makes a plot of some runs: of one it shows the iterations, of several each run."""


def names_of(runs: Sequence[RunReader]) -> list[str]:
    """Return the names of runs."""
    return [run.folder.name for run in runs]
