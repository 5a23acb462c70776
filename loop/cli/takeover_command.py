"""The command `takeover`: it makes a run of a bucket this machine's own."""

from pathlib import Path
from typing import Annotated

import typer

from ...stores.address import in_lake
from .common import lake_of


def take_over(
    lake: Annotated[
        Path,
        typer.Argument(parser=lake_of, metavar="PLACE", help="The lake: s3://BUCKET/PREFIX."),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Name of the run; default: the only one not here."),
    ] = None,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a machine that may still work on it.")
    ] = False,
) -> None:
    """Take over a run in a bucket whose machine is lost.

    From the last journal in the bucket. The previous machine stops writing to it.
    """
    from ..daemon.resuming import takeover
    from ..run.terminal import say

    run, lines = takeover(lake, name, force=force)
    for line in lines:
        say(line)
    say(f"`lpfloop resume {run}{in_lake(lake)}` continues it")
    typer.echo(run)
