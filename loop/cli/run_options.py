"""The options that describe a run, the same for every command that asks about one."""

from typing import Annotated

import typer

ConfigName = Annotated[str | None, typer.Option("--config", help="Preset or YAML file.")]
Variant = Annotated[str | None, typer.Option(help="Recipe; see `lpfloop config variants`.")]
Iterations = Annotated[int | None, typer.Option(min=0, help="Iterations to reach.")]
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run.")]
PromptsFile = Annotated[str | None, typer.Option(help="Prompts: file, folder or hf:OWNER/NAME.")]
Policy = Annotated[str | None, typer.Option(help="Policy: folder, hub name, URL or RUN:M_2.")]
Critic = Annotated[str | None, typer.Option(help="Critic: folder, hub name, URL or RUN:M_2.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all random numbers.")]

Download = Annotated[bool, typer.Option("--download", help="Fetch what the hub's cache lacks.")]
