"""`lpfloop report`: one page that says what came of a run."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from .common import DEFAULT_LAKE, AnyRun, Lake, Replace, exit_codes


def report(
    name: AnyRun = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="What to write: an HTML page; default: one in the run's folder."
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(help="Folder for each plot as SVG, and its rows as Parquet."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    force: Replace = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Write a page with the results and plots of a run."""
    import webbrowser

    from ..daemon.status import daemon_of
    from ..evaluation.plots import require_matplotlib
    from ..lake.query.runs import open_run
    from ..report.run_report import run_report
    from ..report.write_report import (
        check_places,
        keep_report,
        output_plots,
        output_report,
        report_folder,
    )

    with exit_codes():
        require_matplotlib("a report")
        check_places(output, plots, force=force)
        with closing(open_run(lake, name)) as run:
            own = None if output is not None else report_folder(run.folder)
            found = run_report(run, daemon_of(run.journal).state)
        if output is not None:
            output_report(found, output, force=force)
        page = output if own is None else keep_report(found, own)
        if plots is not None:
            output_plots(found, plots, force=force)
    typer.echo(page)
    if show:
        webbrowser.open(page.absolute().as_uri())
