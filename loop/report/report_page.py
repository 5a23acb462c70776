"""The page of a report: one self-contained HTML file, in light and dark, also on paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..evaluation.plots import page_svg
from .html_elements import Html, element, listed, prose
from .report_plot import ReportPlot

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MARK = "lpfloop report"
"""The generator tag by which a report is recognised."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPlot:
    """A plot with its panels as SVG, empty without data."""

    plot: ReportPlot
    panels: Sequence[str]


def drawn(plot: ReportPlot) -> DrawnPlot:
    """Draw a plot for a page."""
    panels = plot.panels if plot.rows.height else ()
    svgs = [page_svg(panel, f"{plot.name}-{number}") for number, panel in enumerate(panels)]
    return DrawnPlot(plot=plot, panels=svgs)


def plot_section(shown: DrawnPlot) -> Html:
    """Return a plot with its sentence, its command and its notes."""
    plot = shown.plot
    pictures = [element("figure", Html(panel)) for panel in shown.panels]
    return element(
        "section",
        element("h2", plot.title),
        element("p", plot.reading, class_="reading"),
        element("div", *pictures, class_="plots") if pictures else _missing(plot.missing),
        listed(map(prose, plot.notes)),
        element("p", "Rows: ", element("code", plot.command), class_="command"),
        id=plot.name,
    )


def _missing(why: str) -> Html:
    return element("p", f"Nothing to draw: {why}.", class_="missing")
