"""The command about this machine: `doctor`."""

from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..daemon.run_request import RunOptions
from .common import Exit, Lake, Settings
from .output import DocumentOutput
from .run_options import (
    ConfigName,
    Critic,
    Download,
    Policy,
    PromptsFile,
    RecipeName,
)


def doctor(
    *,
    config: ConfigName = None,
    recipe: RecipeName = None,
    lake: Lake = DEFAULT_LAKE,
    prompts: PromptsFile = None,
    policy: Policy = None,
    critic: Critic = None,
    settings: Settings = None,
    download: Download = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Then try a few prompts through all stages.")
    ] = False,
    versions: Annotated[
        bool, typer.Option("--versions", help="List the versions of packages, too.")
    ] = False,
    out: DocumentOutput,
) -> None:
    """Check whether `lpfloop run` would start here."""
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.doctor import diagnose
    from ..daemon.smoke_alone import smoke_alone
    from .run_commands import refuse_secrets
    from .session import reporting, stop_signal

    options = RunOptions(
        config=config,
        recipe=recipe,
        prompts=prompts,
        policy=policy,
        critic=critic,
        settings=settings or (),
        download=download,
    )
    refuse_secrets(settings or ())
    options = options.in_lake(lake)
    loaded = options.resolve()
    hide_environment()
    hide_secrets_of(loaded)
    diagnosis = diagnose(loaded, lake, options.name_of(loaded))
    typer.echo(diagnosis.as_json() if out.as_json else diagnosis.as_text(versions=versions))
    if not diagnosis.ok:
        raise typer.Exit(Exit.FAULT)
    if smoke:
        stop = stop_signal(loaded)
        with reporting() as reporter, stop.on_signals():
            smoke_alone(loaded, lake, reporter, stop)
