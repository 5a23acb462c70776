"""The page of a report: one HTML file that asks for nothing, in light and dark, also on paper."""

from collections.abc import Sequence
from pathlib import Path

from ..evaluation.plots import page_svg
from .html_elements import Html, element, joined, listed
from .report_plot import ReportPlot

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MARK = "lpfloop report"
"""By what a report is known as one."""


def report_html(title: str, sections: Sequence[Html]) -> str:
    """Return a whole page of these sections."""
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=MARK),
        element("title", title),
        Html(f"<style>{style}</style>"),
    )
    body = element("body", element("main", element("h1", title), *sections))
    return f"<!doctype html>\n{element('html', head, body, lang='en').markup}\n"


def plot_section(plot: ReportPlot) -> Html:
    """Return a plot with its sentence, its command and its notes."""
    drawn = plot.panels if plot.rows.height else ()
    pictures = [
        element("figure", Html(page_svg(panel, f"{plot.name}-{number}")))
        for number, panel in enumerate(drawn)
    ]
    shown = element("div", *pictures, class_="plots") if pictures else _missing(plot.missing)
    return element(
        "section",
        element("h2", plot.title),
        element("p", plot.reading, class_="reading"),
        shown,
        listed(plot.notes),
        element("p", "Rows: ", element("code", plot.command), class_="command"),
        id=plot.name,
    )


def _missing(why: str) -> Html:
    return element("p", f"Nothing to draw: {why}.", class_="missing")


def paragraphs(texts: Sequence[str]) -> Html:
    """Return a paragraph for each text."""
    return joined(element("p", text) for text in texts)
