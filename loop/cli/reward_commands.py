"""`lpfloop eval reward`: how often a reward model prefers what people prefer."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..lake.query.forms import Form, FormError

if TYPE_CHECKING:
    from ...stores.keys import Json
    from ..evaluation.reward_accuracy import Accuracy

REWARD = "reward"
TABLE = ("task", "accuracy", "low", "high", "choices", "unscored")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCheck:
    """A check of a reward model: its folder, the files, a field to group by, and who are people."""

    model: str | None
    files: Sequence[Path]
    by: str | None
    human: Sequence[str]


def check_reward(
    wanted: RewardCheck, settings: Sequence[str], form: Form, *, as_json: bool
) -> None:
    """Write the accuracy of a reward model on all choices of people, and by task type.

    Raises:
        FormError: if the model or the files are missing.
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
    from ..lake.query.row_output import is_table, write_frame
    from ..run.models import located
    from ..run.terminal import say
    from .tables import print_json

    if wanted.model is None or not wanted.files:
        raise FormError(f"eval {REWARD}: needs --reward FOLDER and --preferences FILE")
    is_table(form, as_json=as_json)
    config = load_config(None, None, settings, os.environ).reward
    found = read_preferences(wanted.files, (*PEOPLE, *wanted.human), by=wanted.by)
    folder = Path(located(wanted.model, REWARD))
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
    write_frame(pl.DataFrame([_row(row) for row in rows]), form, TABLE)
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
