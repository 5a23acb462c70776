"""The report of a judge check: its table, rows for programs, and plots.

The plots are like AlpacaFarm's Figures 4, 7 and 9.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console

from ...configs.schema import RewardConfig
from ...stores.keys import Json
from ..data.files import InputError
from ..data.text import one_line, print_wrapped
from ..lake.query.row_table import print_figures
from ..lake.statistics.clustered_estimates import Estimate
from .figure_tables import measure_columns, measure_fields
from .judge_check import ALL, JUDGE, KAPPAS, MEASURES, PEOPLE, Checked, check, reward_judgments
from .judgment_sources import JudgmentReading, judgments_of
from .judgments import Judgment, Judgments, collect
from .plots import Intervals, Lines, Panel, PlottedValue, Series, write_plot

NAME = 40
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """The complete results of a check.

    `by` is the field that names the task types.
    """

    judgments: Judgments
    checked: Sequence[Checked]
    by: str | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """One row for each annotator and task type.

        `worst` and `best` are the agreement if all unread replies were wrong, and if all were
        right.
        """
        return pl.DataFrame([_row(each) for each in self.checked], infer_schema_length=None)


def judge_report(
    sources: Sequence[str],
    lake: Path,
    reading: JudgmentReading,
    *,
    second: str | None = None,
    model: str | None = None,
    reward: tuple[RewardConfig, Path] | None = None,
) -> JudgeReport:
    """Check the judges of files and runs, and the reward model in a folder as one of them.

    Raises:
        EngineError: if the reward model cannot be run.
        InputError: if the sources hold no judgments of two outputs, or not the field of `by`.
    """
    given: Iterable[Judgment] = judgments_of(sources, lake, reading)
    if reward is not None:
        given = list(given)
        given = [*given, *reward_judgments(given, *reward)]
    judgments = collect(given)
    if not len(judgments.instructions):
        raise InputError("no judgments of two different outputs in: " + ", ".join(sources))
    if reading.by is not None and not any(judgments.tasks):
        raise InputError(f"--by {reading.by}: no judgment has a field of this name")
    return JudgeReport(
        judgments=judgments,
        checked=check(judgments, second=second, model=model),
        by=reading.by,
    )


def _row(each: Checked) -> dict[str, Json]:
    worst, best = each.if_read or (None, None)
    return {
        "task": each.task,
        "annotator": each.name,
        "kind": each.kind,
        "verdicts": each.verdicts,
        "unread": each.unread,
        "price": each.price,
        "worst": worst,
        "best": best,
        **measure_fields(each.measures, MEASURES),
    }


def print_report(report: JudgeReport) -> None:
    """Print how many pairs there are, and the measures in percent with their intervals."""
    console, judgments, checked = Console(), report.judgments, report.checked
    pairs, instructions = len(judgments.instructions), int(judgments.instructions.max()) + 1
    print_wrapped(console, f"{pairs:,} pairs, {instructions:,} instructions")
    print_wrapped(console, "percent, and kappas from -1 to 1 [95 % interval, by instruction]")
    names = {"annotator": [_name(each.name) for each in checked]}
    if report.by is not None:
        names = {"task": [_name(each.task) for each in checked], **names}
    counts = {
        "verdicts": [f"{each.verdicts:,}" for each in checked],
        "unread": [
            f"{each.unread:,} ({each.unread_share:.1%})" if each.unread else "" for each in checked
        ],
        "agree if read": [
            "" if (ends := each.if_read) is None else "{:.1f} to {:.1f}".format(*_percents(ends))
            for each in checked
        ],
        "price of 1,000": [
            "" if each.price is None else f"{1000 * each.price:.2f}" for each in checked
        ],
    }
    shown = [(heading, cells) for heading, cells in counts.items() if any(cells)]
    measures = measure_columns([each.measures for each in checked], MEASURES, KAPPAS)
    print_figures(console, list(names.items()), [*shown, *measures])
    if report.by is not None and (without := judgments.tasks.count(None)):
        print_wrapped(
            console,
            f"{without:,} pairs have no {report.by!r}, or several; they count under {ALL!r} alone",
        )


def _name(name: str) -> str:
    return one_line(name, limit=NAME)


def _percents(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


def plot_report(path: Path, report: JudgeReport, *, force: bool) -> None:
    """Plot the available measures on all pairs, one panel each.

    Raises:
        FormError: if this kind of plot is not possible.
        TargetError: if the file cannot be written, or is there already and not `force`.
    """
    checked = [each for each in report.checked if each.task == ALL]
    scatter = [*_agreement_and_price(checked), *_bias_and_variance(checked)]
    intervals = [panel for measure in PANELS for panel in _intervals(measure, checked)]
    write_plot(path, [*scatter, *intervals], force=force)


def _agreement_and_price(checked: Sequence[Checked]) -> Iterator[Panel]:
    """Give agreement with people against the price of verdicts, as in Figure 4."""
    agreed = [
        (each, each.measures.get("held_out", each.measures.get("agreement"))) for each in checked
    ]
    priced = [
        (1000 * each.price, _plotted(each.name, found))
        for each, found in agreed
        if each.price is not None and found is not None
    ]
    if priced:
        points = Series(
            label="judges",
            x=[price for price, _ in priced],
            y=[found.value for _, found in priced],
            low=[found.low for _, found in priced],
            high=[found.high for _, found in priced],
            style="points",
            names=[found.label for _, found in priced],
        )
        yield Lines(
            series=[points],
            title="Agreement with people, and its price",
            x_label="price of 1,000 verdicts",
            y_label="agreement, percent",
        )


def _bias_and_variance(checked: Sequence[Checked]) -> Iterator[Panel]:
    """Give bias against variance as in Figure 7; people's bias is 0 by definition."""
    series = list[Series]()
    for kind in dict.fromkeys(each.kind for each in checked):
        own = [each for each in checked if each.kind == kind and "variance" in each.measures]
        points = [each for each in own if kind == PEOPLE or "bias" in each.measures]
        if points:
            bias = [each.measures.get("bias") for each in points]
            series.append(
                Series(
                    label=f"each judge ({len(points)})" if kind == JUDGE else points[0].name,
                    x=[100 * each.measures["variance"].value for each in points],
                    y=[0.0 if found is None else 100 * found.value for found in bias],
                    style="points",
                )
            )
    if series:
        yield Lines(
            series=series,
            title="Bias and variance",
            x_label="variance, percent",
            y_label="bias, percent",
        )


def _intervals(measure: str, checked: Sequence[Checked]) -> Iterator[Panel]:
    found = [
        _plotted(each.name, each.measures[measure]) for each in checked if measure in each.measures
    ]
    if found:
        level = 50.0 if measure in EVEN else None
        yield Intervals(estimates=found, title=PANELS[measure], x_label="percent", level=level)


def _plotted(name: str, found: Estimate) -> PlottedValue:
    ends = (found.value if end is None else end for end in (found.low, found.high))
    value, low, high = _percents((found.value, *ends))
    return PlottedValue(label=_name(name), value=value, low=low, high=high)
