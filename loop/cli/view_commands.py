"""`lpfloop view`: a local page over the lake."""

from importlib.util import find_spec
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import FormError
from .common import AnyRun, Lake

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
