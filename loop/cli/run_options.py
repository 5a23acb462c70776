"""The options that describe a run, the same for every command that asks about one."""

from typing import Annotated

import typer

from .word_completion import preset_names, recipe_names, run_names

INPUTS, TRAINING, COMPARE, RESUME = "Inputs", "Training", "Compare", "Resume"
"""The panels of `lpfloop run --help`; other options are in the panel OUTPUT."""
OUTPUT = "Output"

ConfigName = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="Preset or YAML file.",
        autocompletion=preset_names,
        rich_help_panel=INPUTS,
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        help="Recipe: `lpfloop config recipes` lists them.",
        autocompletion=recipe_names,
        rich_help_panel=TRAINING,
    ),
]
Iterations = Annotated[
    int | None, typer.Option(min=0, help="Iterations to reach.", rich_help_panel=TRAINING)
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run", help="Name of the run.", autocompletion=run_names, rich_help_panel=RESUME
    ),
]
PromptsFile = Annotated[
    str | None,
    typer.Option(help="Prompts: file, folder or hf:OWNER/NAME.", rich_help_panel=INPUTS),
]
Policy = Annotated[
    str | None,
    typer.Option(help="Policy: folder, hub name, URL or RUN:M_2.", rich_help_panel=INPUTS),
]
Critic = Annotated[
    str | None,
    typer.Option(
        help="Critic: folder, hub name, URL, RUN:M_2, verifier or ./FILE.py:NAME.",
        rich_help_panel=INPUTS,
    ),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Root of all random draws.", rich_help_panel=TRAINING)
]
Download = Annotated[
    bool,
    typer.Option(
        "--download",
        help="Download models and data that are not in the hub's cache.",
        rich_help_panel=INPUTS,
    ),
]
