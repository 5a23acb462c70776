"""`lpfloop eval reward`: how often a reward model agrees with people's preferences."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import Form
from .common import AsJson, ByField, Human, Layout, Settings, exit_codes

if TYPE_CHECKING:
    from ...stores.keys import Json
    from ..evaluation.reward_accuracy import Accuracy

TABLE = ("task", "accuracy", "low", "high", "choices", "unscored")


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
    as_json: AsJson = False,
) -> None:
    """Measure how a reward model agrees with people."""
    import polars as pl

    from ...configs.load import load_config
    from ...configs.schema import ConfigError
    from ...policies.engines.engine import EngineError
    from ...policies.workers.identity import check_folder
    from ..evaluation.judgment_sources import JudgmentReading
    from ..evaluation.preference_sets import read_preferences
    from ..evaluation.reward_accuracy import accuracies, scores_of
    from ..lake.imports.import_formats import named_layout
    from ..lake.query.row_output import write_frame
    from ..run.models import locate_model
    from ..run.terminal import say
    from .tables import print_json

    with exit_codes():
        config = load_config(None, None, settings or (), os.environ).reward
        reading = JudgmentReading(human=human or (), by=by, layout=named_layout(form))
        found = read_preferences(preferences, reading)
        folder = Path(locate_model(reward, "reward"))
        try:
            check_folder(folder)
        except EngineError as error:
            raise ConfigError(f"--reward: {error}") from error
        rows = accuracies(found.choices, scores_of(config, folder, found.choices))
        if as_json:
            print_json({"tied": found.tied, "tasks": [asdict(row) for row in rows]})
            return
        write_frame(pl.DataFrame([_row(row) for row in rows]), Form.AUTO, TABLE)
        say(f"{len(found.choices)} choices of people; {found.tied} ties and split votes left out")


def _row(found: "Accuracy") -> "dict[str, Json]":
    accuracy = found.accuracy
    return {
        "task": found.task,
        "accuracy": None if accuracy is None else accuracy.value,
        "low": None if accuracy is None else accuracy.low,
        "high": None if accuracy is None else accuracy.high,
        "margin": found.margin,
        "choices": found.choices,
        "unscored": found.unscored,
    }
