"""The options that describe a run, the same for every command that asks about one."""

from typing import Annotated

import typer

from .word_completion import preset_names, run_names, variant_names

ConfigName = Annotated[
    str | None, typer.Option("--config", help="Preset or YAML file.", autocompletion=preset_names)
]
Variant = Annotated[
    str | None,
    typer.Option(
        help="Recipe: `lpfloop config variants` lists them.", autocompletion=variant_names
    ),
]
Iterations = Annotated[int | None, typer.Option(min=0, help="Iterations to reach.")]
RunName = Annotated[
    str | None, typer.Option("--run", help="Name of the run.", autocompletion=run_names)
]
PromptsFile = Annotated[str | None, typer.Option(help="Prompts: file, folder or hf:OWNER/NAME.")]
Policy = Annotated[str | None, typer.Option(help="Policy: folder, hub name, URL or RUN:M_2.")]
Critic = Annotated[
    str | None,
    typer.Option(help="Critic: folder, hub name, URL, RUN:M_2, verifier or ./FILE.py:NAME."),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all random draws.")]

Download = Annotated[
    bool,
    typer.Option("--download", help="Download models and data that are not in the hub's cache."),
]
