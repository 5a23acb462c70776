"""`lpfloop report`: one page with the results of a run."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from .common import AnyRun, Lake, Replace


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
    from ..lake.query.runs import open_run
    from ..report.write_report import write_run_report

    with closing(open_run(lake, name)) as run:
        state = daemon_of(run.journal).state
        page = write_run_report(run, state, output=output, plots=plots, force=force)
    typer.echo(page)
    if show:
        webbrowser.open(page.absolute().as_uri())
