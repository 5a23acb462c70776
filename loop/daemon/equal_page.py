"""The page and the plot of a comparison at equal tokens."""

from collections.abc import Iterator, Sequence

import polars as pl

from ...stores.keys import Json
from ..evaluation.method_outcomes import MethodOutcome, shared_metric
from ..evaluation.pairwise_verdicts import DECIDING
from ..evaluation.panels import Panel
from ..evaluation.token_panels import token_panels
from ..report.html_elements import Html, element, listed, prose, table
from ..report.report_page import drawn, plot_section, report_html
from ..report.report_plot import ReportPlot
from ..report.run_report import Report
from .equal_reach import reach_head, reach_rows, reached_scores
from .equal_rows import TRIAL_HEAD, VERDICT_HEAD, EqualTable, trial_rows, verdict_rows

READING = (
    "Each line is a method, with the band in which its score lies with 95 % confidence: of two "
    "lines the higher one at the same place made more of the same tokens."
)


def equal_page(shown: EqualTable) -> Report:
    """Return the page of a comparison: results, verdicts, trials, score against tokens."""
    plot = drawn(equal_plot(shown))
    name = shown.record.name
    sections = [
        _section("Results", shown.title, _results(shown), listed(f"{r}." for r in shown.remarks())),
        _section(
            "Which method is better",
            "Of the last policies within the budget, prompt by prompt and seed by seed; all lines "
            "share an error rate of 5 %. What it means: docs/fair-comparison.md",
            table(VERDICT_HEAD, verdict_rows(shown)),
        ),
        _section(
            "The settings that were tried",
            "The dev prompts alone choose, at a seed of their own.",
            table(TRIAL_HEAD, trial_rows(shown.record)),
        ),
        *_reached(shown),
        plot_section(plot),
    ]
    return Report(html=report_html(f"{name}: methods at equal tokens", sections), plots=[plot])


def equal_plot(shown: EqualTable) -> ReportPlot:
    """Return the plot of score against generated tokens, with its rows."""
    rows = [row for outcome in shown.outcomes for row in _rows(outcome)]
    return ReportPlot(
        name="tokens",
        title="Score against generated tokens",
        reading=READING,
        command=f"lpfloop compare --equal-tokens {shown.record.name} --json",
        rows=pl.DataFrame(rows, infer_schema_length=None),
        panels=equal_panels(shown.outcomes),
        missing="no method has measured a policy within the budget yet",
    )


def equal_panels(outcomes: Sequence[MethodOutcome]) -> list[Panel]:
    """Return the panels by the first usual figure that all policies were measured by."""
    metric = shared_metric(outcomes)
    return [] if metric is None else token_panels(outcomes, metric)


def _rows(outcome: MethodOutcome) -> list[dict[str, Json]]:
    return [
        {
            "method": outcome.method,
            "run": course.run,
            "policy": point.policy.name,
            "policy_tokens": point.cost.policy_tokens,
            "judge_tokens": point.cost.judge_tokens,
            "judge_calls": point.cost.judge_calls,
            "prompt_tokens": point.cost.prompt_tokens,
            **{metric: point.score(metric) for metric in DECIDING},
        }
        for course in outcome.courses
        for point in course.points
    ]


def _reached(shown: EqualTable) -> Iterator[Html]:
    found = reached_scores(shown.outcomes)
    if found:
        yield _section(
            "Tokens to the same score",
            "Tokens of the policy after which a method first has a score, and how many times as "
            "many the first method needs: geometric means over seeds, with intervals of 95 %.",
            table(reach_head(found), reach_rows(found)),
        )


def _results(shown: EqualTable) -> Html:
    columns = shown.columns
    rows = [
        [name, *(cells[number] for _, cells in columns)] for number, name in enumerate(shown.names)
    ]
    return table(["", *(heading for heading, _ in columns)], rows)


def _section(title: str, said: str, *content: Html) -> Html:
    return element("section", element("h2", title), element("p", prose(said)), *content)
