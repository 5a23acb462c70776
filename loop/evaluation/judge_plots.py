"""The plots of a judge check, like AlpacaFarm's Figures 4, 7, 8 and 9."""

from collections.abc import Sequence
from pathlib import Path

from ..data.sanitize import one_line
from .judge_check import JUDGE, PEOPLE, Checked
from .judge_report import NAME
from .kappas import AnnotatorKappa
from .plots import Intervals, Lines, Matrix, Panel, PlottedValue, Series, write_plot

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


def plot_check(
    path: Path, checked: Sequence[Checked], twos: Sequence[AnnotatorKappa], *, force: bool
) -> None:
    """Plot the available measures, one panel each.

    Raises:
        FormError: if this kind of plot is not possible.
        TargetError: if the file cannot be written, or is there already and not `force`.
    """
    panels = [panel for measure in PANELS if (panel := _panel(measure, checked))]
    scatter = [*_agreement_and_price(checked), *_bias_and_variance(checked)]
    write_plot(path, [*scatter, *panels, *_matrix(twos)], force=force)


def _agreement_and_price(checked: Sequence[Checked]) -> list[Panel]:
    """Plot agreement with people against the price of verdicts, as in Figure 4."""
    priced = [
        (each.price, found)
        for each in checked
        if each.price is not None and (found := each.held_out or each.agreement)
    ]
    names = [e.name for e in checked if e.price is not None and (e.held_out or e.agreement)]
    if not priced:
        return []
    points = Series(
        label="judges",
        x=[1000 * price for price, _ in priced],
        y=[100 * found.value for _, found in priced],
        low=[100 * (found.value if found.low is None else found.low) for _, found in priced],
        high=[100 * (found.value if found.high is None else found.high) for _, found in priced],
        style="points",
        names=names,
    )
    return [
        Lines(
            series=[points],
            title="Agreement with people, and its price",
            x_label="price of 1,000 verdicts",
            y_label="agreement, percent",
        )
    ]


def _matrix(twos: Sequence[AnnotatorKappa]) -> list[Panel]:
    """Plot the agreement of every two annotators, as in Figure 8."""
    agreed = {(each.first, each.second): each.agreement for each in twos if each.agreement}
    names = sorted({name for two in agreed for name in two})
    if not names:
        return []

    def value(first: str, second: str) -> float | None:
        found = agreed.get((first, second)) or agreed.get((second, first))
        return None if found is None else 100 * found.value

    return [
        Matrix(
            names=names,
            values=[[value(row, column) for column in names] for row in names],
            title="Agreement of every two annotators",
            x_label="percent of the pairs that both judged",
        )
    ]


def _panel(measure: str, checked: Sequence[Checked]) -> Intervals | None:
    estimates = [
        PlottedValue(
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
    return Intervals(
        estimates=estimates,
        title=PANELS[measure],
        x_label="percent",
        level=50.0 if measure in EVEN else None,
    )


def _bias_and_variance(checked: Sequence[Checked]) -> list[Panel]:
    """Plot bias against variance as in Figure 7; people's bias is 0 by definition."""
    series = [
        Series(
            label=f"each judge ({len(points)})" if kind == JUDGE else points[0].name,
            x=[100 * each.variance.value for each in points if each.variance],
            y=[100 * (each.bias.value if each.bias else 0.0) for each in points if each.variance],
            style="points",
        )
        for kind in dict.fromkeys(each.kind for each in checked)
        if (points := [e for e in checked if e.kind == kind and _has_place(e)])
    ]
    return [_figure_7(series)] if series else []


def _has_place(each: Checked) -> bool:
    return each.variance is not None and (each.bias is not None or each.kind == PEOPLE)


def _figure_7(series: Sequence[Series]) -> Panel:
    return Lines(
        series=series,
        title="Bias and variance",
        x_label="variance, percent",
        y_label="bias, percent",
    )
