"""`lpfloop worker`: lend this machine to a run elsewhere."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .common import exit_codes


def worker(
    join: Annotated[
        str,
        typer.Option("--join", metavar="HOST:PORT", help="Where the run listens for workers."),
    ],
    *,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the run's token; default: LPFLOOP_JOIN_TOKEN."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="PEM file that vouches for the run's certificate: joins by TLS."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="0,1", help="GPUs to lend, by number; default: all visible ones."),
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Name of this machine in the run; default: its host name.")
    ] = None,
    logs: Annotated[
        Path | None,
        typer.Option(help="Folder for what models print; default: a new one for temporary files."),
    ] = None,
    idle_s: Annotated[
        float | None,
        typer.Option("--idle-s", min=1, help="End after so many seconds without a model."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End after the first model.")] = False,
    one_run: Annotated[
        bool, typer.Option("--one-run", help="End when the run that it joined is over.")
    ] = False,
) -> None:
    """Lend this machine's GPUs, or its CPU, to a run elsewhere.

    It joins again when the run is resumed, and ends on Ctrl-C or SIGTERM; a second one ends it at
    once.
    """
    import socket
    import tempfile

    from ...policies.workers.join_protocol import split_address
    from ...policies.workers.worker_agent import WorkerAgent
    from ...policies.workers.worker_offer import Offer, known_token, lent_gpus, tls_by
    from ..run.terminal import say

    with exit_codes():
        host, port = split_address(join)
        offer = Offer(
            host=host,
            port=port,
            token=known_token(token_file),
            name=machine or socket.gethostname(),
            logs=logs or Path(tempfile.mkdtemp(prefix="lpfloop-worker-")),
            gpus=lent_gpus(gpus),
            tls=tls_by(tls_ca),
            idle_s=idle_s,
            once=once,
            one_run=one_run,
        )
        say(f"what models print goes to {offer.logs}")
        WorkerAgent(offer, say).serve()
        sys.stderr.flush()
        # All models have ended. The threads of a download under way must not keep the process.
        os._exit(0)
