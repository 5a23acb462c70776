"""The report of a judge check: two tables, and a plot like Figures 7 and 9."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...stores.keys import Json
from ..data.sanitize import one_line
from ..lake.statistics.bootstrap import Estimate
from . import plots
from .judge_agreement import Agreement
from .judge_check import JUDGE, PEOPLE, Checked, Settings
from .judgments import Judgments

NAME = 40
TABLES = (
    {"agreement": "agree", "decided": "no ties", "held_out": "held out"},
    {"bias": "bias", "variance": "variance", "longer": "longer", "lists": "lists"},
    {"first_shown": "shown first", "both_orders": "both orders", "repeats": "repeats"},
)
"""The measures of each table with their headings: few enough for a narrow terminal."""
AGREEMENTS = (
    {"person": "a person", "majority": "majority", "second": "second"},
    {"win": "wins", "tie": "ties", "lose": "loses"},
)
"""The same for agreement, and for wins of a model's outputs."""
PANELS = {
    "held_out": "Agreement with the majority of the other people",
    "agreement": "Agreement with the majority of people",
    "longer": "Prefers the longer output",
    "lists": "Prefers the output with a list",
    "first_shown": "Prefers the output shown first",
    "both_orders": "Same verdict in both orders",
}
EVEN = ("longer", "lists", "first_shown")
"""Measures for which one half means no bias."""


def document(
    judgments: Judgments,
    checked: Sequence[Checked],
    agreed: Sequence[Agreement],
    settings: Settings,
) -> Json:
    """Return the whole check as a JSON document, with the agreements if there are any."""
    asked: dict[str, Json] = {"agreements": [asdict(each) for each in agreed]} if agreed else {}
    return {
        "pairs": len(judgments.instructions),
        "instructions": int(judgments.instructions.max()) + 1,
        "settings": asdict(settings),
        "annotators": [asdict(each) for each in checked],
        **asked,
    }


def print_check(judgments: Judgments, checked: Sequence[Checked]) -> None:
    """Print how many pairs there are, and the measures in percent with their intervals."""
    console = Console()
    pairs, instructions = len(judgments.instructions), int(judgments.instructions.max()) + 1
    console.print(f"{pairs:,} pairs, {instructions:,} instructions", highlight=False)
    console.print("percent [95 % interval, resampled by instruction]", highlight=False)
    for number, columns in enumerate(TABLES):
        there = [name for name in columns if any(getattr(each, name) for each in checked)]
        if there or not number:
            console.print(_table(checked, {n: columns[n] for n in there}, counts=not number))


def print_agreements(agreed: Sequence[Agreement]) -> None:
    """Print agreement in wins, ties and losses, by task type and annotator, in percent."""
    for columns in AGREEMENTS:
        there = [name for name in columns if any(getattr(each, name) for each in agreed)]
        if there:
            Console().print(_agreements_table(agreed, {name: columns[name] for name in there}))


def _agreements_table(agreed: Sequence[Agreement], columns: dict[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("task", "annotator"):
        table.add_column(heading, overflow="fold")
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for each in agreed:
        names = [escape(one_line(name, limit=NAME)) for name in (each.task, each.name)]
        table.add_row(*names, *(interval_text(getattr(each, name)) for name in columns))
    return table


def _table(checked: Sequence[Checked], columns: dict[str, str], *, counts: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("annotator", overflow="fold")
    headings = (*(("verdicts", "unread") if counts else ()), *columns.values())
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in checked:
        found = [getattr(each, name) for name in columns]
        if counts or any(found):
            numbers = (f"{each.verdicts:,}", f"{each.unread:,}" if each.unread else "")
            cells = (*(numbers if counts else ()), *map(interval_text, found))
            table.add_row(escape(one_line(each.name, limit=NAME)), *cells)
    return table


def interval_text(estimate: Estimate | None) -> str:
    """Return a measure in percent, with its interval where there is one."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.0%}".rstrip("%")
    return escape(
        f"{100 * estimate.value:.0f} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
    )


def plot_check(path: Path, checked: Sequence[Checked], *, force: bool) -> None:
    """Plot the available measures, one panel each.

    Raises:
        FormError: if this kind of plot is not possible.
        TargetError: if the file cannot be written, or is there already and not `force`.
    """
    panels = [panel for measure in PANELS if (panel := _panel(measure, checked))]
    scatter = _bias_and_variance(checked)
    plots.write_plot(path, [*scatter, *panels], force=force)


def _panel(measure: str, checked: Sequence[Checked]) -> plots.Intervals | None:
    estimates = [
        plots.PlottedValue(
            label=one_line(each.name, limit=NAME),
            value=100 * found.value,
            low=100 * (found.value if found.low is None else found.low),
            high=100 * (found.value if found.high is None else found.high),
        )
        for each in checked
        if (found := getattr(each, measure)) is not None
    ]
    if not estimates:
        return None
    return plots.Intervals(
        estimates=estimates,
        title=PANELS[measure],
        x_label="percent",
        level=50.0 if measure in EVEN else None,
    )


def _bias_and_variance(checked: Sequence[Checked]) -> list[plots.Panel]:
    """Plot bias against variance as in Figure 7, where people's bias is 0 by definition."""
    series = [
        plots.Series(
            label=f"each judge ({len(points)})" if kind == JUDGE else points[0].name,
            x=[100 * each.variance.value for each in points if each.variance],
            y=[100 * (each.bias.value if each.bias else 0.0) for each in points if each.variance],
            style="points",
        )
        for kind in dict.fromkeys(each.kind for each in checked)
        if (points := [e for e in checked if e.kind == kind and _placed(e)])
    ]
    return [_figure_7(series)] if series else []


def _placed(each: Checked) -> bool:
    return each.variance is not None and (each.bias is not None or each.kind == PEOPLE)


def _figure_7(series: Sequence[plots.Series]) -> plots.Panel:
    return plots.Lines(
        series=series,
        title="Bias and variance",
        x_label="variance, percent",
        y_label="bias, percent",
    )
