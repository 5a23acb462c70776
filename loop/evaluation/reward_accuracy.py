"""The accuracy of a reward model: how often people's choice gets the higher score."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ...configs.schema import RewardConfig
from ...policies.engines.engine import ScoreBatch, ScoreRequest
from ...policies.workers.engine_factory import open_scorer
from ..lake.statistics.clustered_estimates import Estimate, estimate, number_clusters, ratio
from .preference_sets import ChosenPair

ALL = "all"
EQUAL = 0.5
"""The value of a choice whose sides have equal scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """A reward model's accuracy on one task type, or on all.

    `accuracy` is from 0 to 1; `margin` is the mean score of the preferred answers minus the mean
    score of the others. Both are None if nothing could be scored; `unscored` choices were too long.
    """

    task: str
    accuracy: Estimate | None
    margin: float | None
    choices: int
    unscored: int


Scores = Sequence[tuple[float | None, float | None]]
"""The scores of the better and of the worse conversation of each choice."""


def scores_of(config: RewardConfig, folder: Path, choices: Sequence[ChosenPair]) -> Scores:
    """Score both sides of each choice by the reward model in `folder`.

    Raises:
        EngineError: if it is not a reward model, or cannot be run.
    """
    with TemporaryDirectory() as work:
        scorer = open_scorer(folder, config, log=Path(work) / "reward.log")
        try:
            found = {
                result.key: result.answers for result in scorer.score(_batches(config, choices))
            }
        finally:
            scorer.close()
    flat = [score for start in range(len(found)) for score in found[str(start)]]
    return list(zip(flat[0::2], flat[1::2], strict=True))


def _batches(config: RewardConfig, choices: Sequence[ChosenPair]) -> Iterator[ScoreBatch]:
    for number, start in enumerate(range(0, len(choices), config.batch_size)):
        requests = [
            ScoreRequest(request_id=f"{place} {side}", messages=messages)
            for place, choice in enumerate(choices[start : start + config.batch_size], start)
            for side, messages in (("better", choice.better), ("worse", choice.worse))
        ]
        yield ScoreBatch(key=str(number), requests=tuple(requests))


def accuracies(choices: Sequence[ChosenPair], scores: Scores) -> list[Accuracy]:
    """Return the accuracy on all choices, and on the choices of each task type."""
    margins = np.array([_margin(*sides) for sides in scores], dtype=np.float64)
    instructions = number_clusters([choice.instruction for choice in choices])
    names = np.array([choice.task for choice in choices])
    read = ~np.isnan(margins)
    right = np.where(read, (margins > 0) + EQUAL * (margins == 0), 0.0)
    found = list[Accuracy]()
    for task in (ALL, *sorted({choice.task for choice in choices if choice.task is not None})):
        of = np.full(len(choices), fill_value=True) if task == ALL else names == task
        accuracy = estimate(ratio(right * of, read & of), instructions)
        found.append(
            Accuracy(
                task=task,
                accuracy=accuracy,
                margin=None if accuracy is None else float(margins[read & of].mean()),
                choices=int(of.sum()),
                unscored=int((of & ~read).sum()),
            )
        )
    return found


def _margin(better: float | None, worse: float | None) -> float:
    """Return the better side's lead in score; NaN if one side is unscored."""
    return np.nan if better is None or worse is None else better - worse
