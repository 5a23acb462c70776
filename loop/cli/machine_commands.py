"""Commands about this machine: `doctor`, and `tiny build`, which trains the tiny world."""

import os
from pathlib import Path
from typing import Annotated

import typer

from .common import DEFAULT_LAKE, AsJson, Exit, Lake, exit_codes


def doctor(
    *,
    config: Annotated[str | None, typer.Option(help="Preset or YAML file.")] = None,
    variant: Annotated[str | None, typer.Option(help="Recipe.")] = None,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Check whether `lpfloop run` would start here, and say what is missing."""
    from ...configs.load import load_config
    from ..daemon.doctor import diagnose

    with exit_codes():
        diagnosis = diagnose(load_config(config, variant, (), os.environ), lake)
    typer.echo(diagnosis.as_json() if as_json else diagnosis.as_text())
    raise typer.Exit(Exit.DONE if diagnosis.ok else Exit.FAULT)


def build(
    output: Annotated[Path, typer.Argument(help="New folder to write.", metavar="OUT")],
    seed: Annotated[int | None, typer.Option(min=0, help="Default: the shipped world's.")] = None,
    scale: Annotated[
        float, typer.Option(min=0.001, max=1, help="Share of the training steps.")
    ] = 1.0,
) -> None:
    """Train the tiny world's seed model M_0 and its reward model from scratch."""
    from ..run.terminal import say
    from ..tiny.build import CARD
    from ..tiny.build import build as build_models
    from ..tiny.training_loops import LoopProgress
    from ..tiny.world import SEED

    def watch(progress: LoopProgress) -> None:
        if progress.step % 50 == 0 or progress.step == progress.steps:
            say(f"{progress.stage} {progress.step}/{progress.steps}  loss {progress.loss:.3f}")

    if output.exists():
        say(f"error: {output} exists already; name a folder that does not")
        raise typer.Exit(Exit.BAD_INPUT)
    report = build_models(output, seed=SEED if seed is None else seed, scale=scale, watch=watch)
    typer.echo((output / CARD).read_text())
    say(f"built in {report.seconds / 60:.1f} minutes, {report.bytes:,} bytes")
