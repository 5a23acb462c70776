"""The report of one run: its answer, its roles, its iterations, its plots, and how it was made."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ... import __version__
from ...stores.digest import run_digest
from ...stores.lake import RunReader
from .html_elements import Html, element, listed, prose
from .plot_list import PLOTS
from .report_page import DrawnPlot, drawn, plot_section, report_html
from .run_answer import run_answer, told_alarms, told_needs
from .run_tables import iterations_section, roles_section

DIGESTED = 30_000
"""Of so many rows at most the digest is computed: of millions it takes longer than the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page and its plots."""

    html: str
    plots: Sequence[DrawnPlot]


def run_report(run: RunReader, work: str) -> Report:
    """Return the report of a run, also an unfinished one; `work` is its process's activity."""
    plots = [drawn(make([run])) for make in PLOTS]
    sections = [
        answer_section(run, work),
        roles_section(run),
        iterations_section(run),
        *map(plot_section, plots),
        made_section([run]),
    ]
    return Report(html=report_html(f"Run {run.folder.name}", sections), plots=plots)


def answer_section(run: RunReader, work: str) -> Html:
    """Return the first section: the answer, the alarms, and the next steps."""
    found, alarmed = run_answer(run), [*told_alarms(run)]
    return element(
        "section",
        element("p", found.word, class_="word"),
        *(element("p", prose(text)) for text in found.sentences),
        *((element("h3", "Alarms"), listed(map(prose, alarmed))) if alarmed else ()),
        element("h3", "What it needs from you"),
        listed(map(prose, told_needs(run, work))),
        class_=f"answer {found.kind}",
    )


def made_section(runs: Sequence[RunReader]) -> Html:
    """Return the lpfloop version, the sources of the page, and the command to make it again."""
    names = " ".join(run.folder.name for run in runs)
    again = f"report {names}" if len(runs) == 1 else f"compare {names} --report FILE"
    return element(
        "section",
        element("h2", "How this was made"),
        element(
            "p",
            prose(f"By lpfloop {__version__} (Python {platform.python_version()}); made again by "),
            element("code", f"lpfloop {again}"),
            ". Commands are to be given the same ",
            element("code", "--lake"),
            " as this one was, where that is not the default.",
        ),
        listed(prose(_state(run)) for run in runs),
        class_="made",
    )


def _state(run: RunReader) -> str:
    """Return how far a run had come: the same lake gives the same words."""
    name, events = run.folder.name, run.journal.all_events()
    last = max((at for at, _, _ in events), default=0.0)
    when = datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    rows = sum(part.rows for part in run.journal.parts())
    digest = f"digest `{run_digest(run.folder)}`" if rows <= DIGESTED else _by_command(name)
    return f"Run {name} as of {when}, {rows:,} rows, {digest}."


def _by_command(name: str) -> str:
    return f"whose digest `lpfloop lake digest {name}` computes"
