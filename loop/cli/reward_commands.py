"""`lpfloop eval reward`: how often a reward model agrees with people's preferences."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .common import ByField, Human, Layout, Settings
from .output import DocumentOutput


def reward_check(
    *,
    reward: Annotated[str, typer.Option(help="Reward model: a folder, or tiny.")],
    preferences: Annotated[
        list[Path], typer.Option(help="File of preferences of people; can be repeated.")
    ],
    form: Layout = None,
    by: ByField = None,
    human: Human = None,
    settings: Settings = None,
    out: DocumentOutput,
) -> None:
    """Measure how a reward model agrees with people."""
    from rich.console import Console

    from ...configs.load import load_config
    from ...configs.schema import ConfigError
    from ...policies.engines.engine import EngineError
    from ...policies.workers.identity import check_folder
    from ..data.sanitize import one_line
    from ..evaluation.figure_tables import print_figures
    from ..evaluation.judge_report import NAME, interval_text
    from ..evaluation.judgment_sources import JudgmentReading
    from ..evaluation.preference_sets import read_preferences
    from ..evaluation.reward_accuracy import accuracies, scores_of
    from ..lake.imports.import_formats import named_layout
    from ..run.models import locate_model
    from ..run.terminal import say
    from .tables import print_json

    config = load_config(None, None, settings or (), os.environ).reward
    reading = JudgmentReading(human=human or (), by=by, layout=named_layout(form))
    found = read_preferences(preferences, reading)
    folder = Path(locate_model(reward, "reward"))
    try:
        check_folder(folder)
    except EngineError as error:
        raise ConfigError(f"--reward: {error}") from error
    rows = accuracies(found.choices, scores_of(config, folder, found.choices))
    if out.as_json:
        print_json({"tied": found.tied, "tasks": [asdict(row) for row in rows]})
        return
    print_figures(
        Console(),
        [("task", [one_line(row.task, limit=NAME) for row in rows])],
        [
            ("accuracy %", [interval_text(row.accuracy) for row in rows]),
            ("choices", [f"{row.choices:,}" for row in rows]),
            ("unscored", [f"{row.unscored:,}" for row in rows]),
        ],
    )
    say(f"{len(found.choices)} choices of people; {found.tied} ties and split votes left out")
