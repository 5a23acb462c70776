"""Commands that show results: `show`, `diff`, `report`, `view`."""

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import FormError
from .common import chosen_run
from .options import AnyRun, DocumentOutput, Lake, Limit, OneIteration, OneTask, Replace, run_names

AnyId = Annotated[
    str,
    typer.Argument(
        help="Id of a prompt, candidate, critique, preference, pair, demonstration or checkpoint; "
        "its beginning is enough. Or a model: M_2, latest, best; of another run: RUN:M_2.",
        metavar="ID",
    ),
]
OfRun = Annotated[
    str | None,
    typer.Argument(
        help="Name of the run; default: the latest with this id.",
        metavar="RUN",
        autocompletion=run_names,
    ),
]
ANY_MODEL = "T|M_T|latest|best"
LISTED = 10
"""So many changes each way are listed by default."""


def show(
    identity: AnyId,
    name: OfRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    out: DocumentOutput,
) -> None:
    """Show all about a prompt, an answer, a pair or a model.

    With its prompt, candidates, critiques and pairs, and why these were made.
    """
    from ..lake.trace.find_row import find_run
    from ..lake.trace.show import show_row
    from ..lake.trace.terminal_page import print_page

    run, found = find_run(lake, identity, name)
    answer = show_row(run, found, iteration)
    run.close()
    out.document(answer.document, lambda: print_page(answer.page))


def diff(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    before: Annotated[
        str | None,
        typer.Option("--from", metavar=ANY_MODEL, help="First iteration; default: that of M_0."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar=f"{ANY_MODEL}|RUN:M_T",
            help="Second iteration, of another run as RUN:M_T; default: the last.",
        ),
    ] = None,
    task: OneTask = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric to compare; default: all, and for changes the deciding one."),
    ] = None,
    benchmark: Annotated[str, typer.Option(help="Benchmark to compare on.")] = "held-out",
    by: Annotated[
        Literal["task", "family"],
        typer.Option(help="Group by this: the task or the family of prompts."),
    ] = "task",
    limit: Limit = None,
    out: DocumentOutput,
) -> None:
    """Compare two models of a run, prompt by prompt.

    What changed, by how much, with intervals.
    """
    from ..lake.query.model_names import iteration_of, model_name
    from ..lake.query.runs import open_run
    from ..lake.trace.diff import DiffRequest
    from ..lake.trace.diff import diff as compared
    from ..lake.trace.terminal_page import print_page

    name = chosen_run(lake, name)
    called = None if after is None else model_name(after)
    to_run = None if called is None else called.run
    with (
        closing(open_run(lake, name)) as first,
        closing(open_run(lake, to_run or name)) as last,
    ):
        request = DiffRequest(
            before=None if before is None else iteration_of(first, before),
            after=None if after is None else iteration_of(last, called.which if called else after),
            benchmark=benchmark,
            by=by,
            task=task,
            metric=metric,
        )
        found = compared(first, request, None if to_run is None else last)
    out.document(found.document, lambda: print_page(found.page(limit or LISTED)))


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


NEEDED = ("starlette", "uvicorn", "jinja2")


def view(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; default: any that is free.")
    ] = 0,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Look at runs in a browser, while they work."""
    from ..lake.query.runs import NoSuchRunError, open_run
    from ..run.terminal import say

    def ready(place: str) -> None:
        typer.echo(place)
        say("open this address in a browser of this machine; Ctrl-C ends it")
        if opens:
            import webbrowser

            webbrowser.open(place)

    if missing := [module for module in NEEDED if find_spec(module) is None]:
        from ...stores.installation import pip_install

        raise FormError(f"view needs {missing[0]}: {pip_install(*missing)}")
    if not (lake / "runs").is_dir():
        raise NoSuchRunError(f"no lake at {lake}: start a run with `lpfloop run`")
    if name is not None:
        open_run(lake, name).close()
    from ..view.server import serve

    serve(lake, name, port, ready)
