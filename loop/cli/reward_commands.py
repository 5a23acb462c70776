"""`lpfloop eval reward`: how often a reward model agrees with people's preferences."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import Form
from .common import AsJson, ByField, Human, Settings, exit_codes

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
    by: ByField = None,
    human: Human = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Measure how a reward model agrees with people."""
    with exit_codes():
        check = RewardCheck(model=reward, files=preferences, by=by, human=human or ())
        _write(check, settings or (), as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCheck:
    """A check of a reward model: its folder, the files, a field to group by, and who are people."""

    model: str
    files: Sequence[Path]
    by: str | None
    human: Sequence[str]


def _write(wanted: RewardCheck, settings: Sequence[str], *, as_json: bool) -> None:
    """Write the accuracy of a reward model on all choices of people, and by task type.

    Raises:
        InputError: if the files cannot be used.
        ConfigError: if a setting or the folder cannot be used.
        EngineError: if the folder does not hold a reward model.
    """
    import polars as pl

    from ...configs.load import load_config
    from ...configs.schema import ConfigError
    from ...policies.engines.engine import EngineError
    from ...policies.workers.identity import check_folder
    from ..evaluation.judgment_formats import PEOPLE
    from ..evaluation.preference_sets import read_preferences
    from ..evaluation.reward_accuracy import accuracies, scores_of
    from ..lake.query.row_output import write_frame
    from ..run.models import located
    from ..run.terminal import say
    from .tables import print_json

    config = load_config(None, None, settings, os.environ).reward
    found = read_preferences(wanted.files, (*PEOPLE, *wanted.human), by=wanted.by)
    folder = Path(located(wanted.model, "reward"))
    try:
        check_folder(folder)
    except EngineError as error:
        raise ConfigError(f"--reward: {error}") from error
    scores = scores_of(config, folder, found.choices)
    rows = accuracies(found.choices, scores)
    if as_json:
        document: dict[str, Json] = {"tied": found.tied, "tasks": [asdict(row) for row in rows]}
        print_json(document)
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
