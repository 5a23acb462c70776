"""The command that checks judges against people: `judge-check`."""

from pathlib import Path
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from .common import (
    ByField,
    Human,
    Lake,
    Layout,
    Replace,
    chosen_run,
)
from .output import DocumentOutput


def judge_check(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of judgments, or names of runs; default: the latest run.",
            metavar="RUN|FILE...",
        ),
    ] = None,
    *,
    form: Layout = None,
    human: Human = None,
    by: ByField = None,
    second: Annotated[
        str | None, typer.Option(help="Also show how this judge agrees, by wins, ties and losses.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Also show how often this model's outputs win, tie and lose.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Also draw a plot into this .svg, .png or .pdf file."),
    ] = None,
    force: Replace = False,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Check how well judges agree with people.

    Also their bias, variance, preferences and consistency.
    """
    from ..evaluation.judge_report import document, judge_report, plot_report, print_report
    from ..evaluation.judgment_sources import JudgmentReading
    from ..evaluation.plots import check_plot
    from ..lake.imports.import_formats import named_layout

    if plot is not None:
        check_plot(plot, force=force)
    report = judge_report(
        sources or [chosen_run(lake, None, tell=True)],
        lake,
        JudgmentReading(human=human or (), by=by, layout=named_layout(form)),
        second=second,
        model=model,
    )
    if plot is not None:
        plot_report(plot, report, force=force)
    out.document(document(report), lambda: print_report(report))
