"""The report of several runs: their results in one table, who is better, and their plots."""

from collections.abc import Iterator, Sequence

from ...stores.lake import RunReader
from ..evaluation.compare_runs import Result
from ..evaluation.compared_columns import (
    comparison_remarks,
    errors_over,
    figure_columns,
    result_name,
    spent_columns,
)
from ..evaluation.pairwise_verdicts import PairwiseVerdict, apart, pairwise_verdicts
from ..lake.query.forms import FormError
from ..lake.query.told_figures import figure_name, told_bounds, told_difference, told_value
from .html_elements import Content, Html, element, listed, prose, table
from .plot_list import PLOTS
from .report_page import drawn, plot_section, report_html
from .report_plot import names_of
from .run_report import Report, made_section


def comparison_report(
    runs: Sequence[RunReader], found: Sequence[Result], *, together: bool
) -> Report:
    """Return the report of runs whose results are `found`, averaged by method if `together`.

    Raises:
        FormError: if it is one run, or no two of them have a prompt in common.
    """
    names = names_of(runs)
    if len(set(names)) < 2:  # noqa: PLR2004 -- to be compared
        raise FormError(
            f"compare --report needs several runs: `lpfloop report {names[0]}` writes the "
            "report of one"
        )
    verdicts = pairwise_verdicts(found)
    if not any(set(each.before.runs) != set(each.after.runs) for each in verdicts):
        raise FormError(
            f"compare --report: {', '.join(names)} share nothing that could be compared: no prompt "
            "was measured in two of them by the same judge; give runs with the same "
            "held-out prompts"
        )
    plots = [drawn(make(runs)) for make in PLOTS]
    sections = [
        _results_section(found, together=together),
        _verdicts_section(verdicts, found, together=together),
        *map(plot_section, plots),
        made_section(runs),
    ]
    return Report(html=report_html(f"Runs {', '.join(names)}", sections), plots=plots)


def _results_section(found: Sequence[Result], *, together: bool) -> Html:
    columns = [*figure_columns(found, None), *spent_columns(found)]
    rows = [
        [result_name(result, together=together), *(cells[number] for _, cells in columns)]
        for number, result in enumerate(found)
    ]
    return element(
        "section",
        element("h2", "Results"),
        element("h3", f"Held-out prompts (test): mean ± standard error over {errors_over(found)}"),
        table(["", *(heading for heading, _ in columns)], rows),
        listed(f"{remark}." for remark in comparison_remarks(found)),
        id="comparison",
    )


def _verdicts_section(
    verdicts: Sequence[PairwiseVerdict], found: Sequence[Result], *, together: bool
) -> Html:
    head = ("", "against", "answer", "by", "change, points", "prompts")
    rows = [_row(each, together=together) for each in verdicts]
    alone = [result_name(result, together=together) for result in apart(found)]
    return element(
        "section",
        element("h2", "Who is better"),
        element("div", table(head, rows), class_="text"),
        element(
            "p",
            prose(
                "Each two are compared prompt by prompt on the prompts that both answered, by the "
                "first figure that the same judge measured for both. That any line says `better` "
                f"where nothing is gained happens at most in 5 % of such tables of {len(rows)}; "
                "the intervals hold at that level. Where a run has a verdict of its own on the "
                "two, the line is that verdict, at its level."
            ),
        ),
        listed(f"{name} shares no measured prompt with any other." for name in alone),
        id="verdicts",
    )


def _row(each: PairwiseVerdict, *, together: bool) -> Sequence[Content]:
    return (
        result_name(each.after, together=together),
        result_name(each.before, together=together),
        " ".join(_answer(each)),
        figure_name(each.metric),
        _change(each),
        f"{each.decision.n:,}",
    )


def _answer(each: PairwiseVerdict) -> Iterator[str]:
    decision = each.decision
    worse = decision.high is not None and decision.high < 0
    yield "worse" if worse else decision.answer
    if decision.needed is not None:
        yield f"(about {decision.needed:,} prompts would decide)"


def _change(each: PairwiseVerdict) -> str:
    decision = each.decision
    before, after = (told_value(each.metric, v) for v in (decision.before, decision.after))
    change = f"{before} → {after} %, {told_difference(each.metric, decision.difference)}"
    return f"{change} {told_bounds(each.metric, decision.low, decision.high)}".rstrip()
