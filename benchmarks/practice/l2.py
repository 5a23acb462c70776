"""The L2 term of the reward model's loss, off and on (ChatGLM-RLHF, Section 3.3, Eq. 2)."""

from collections.abc import Sequence
from statistics import stdev

import polars as pl

from lpfloop.loop.evaluation.panels import Lines, Series
from lpfloop.loop.library.read_only_run import ReadOnlyRun

from .arms import DIFFERENCE, Arms, Mean, Options, Report, Table, compared
from .held_out import accuracy, answers, pairs

WEIGHT = 0.2
METRICS = ("chosen/mean", "rejected/mean")
SCALE = "chosen/sd"
SETTLED = 4
"""After one such part of the steps, the influence of the random initial head is gone."""
CLAIM = (
    "With the L2 term the spread of the mean reward over training falls by at least half beside "
    "the rewards' own standard deviation, at equal accuracy."
)
SHARED = (
    "recipe.n=4",
    "recipe.most=8",
    "prompts.per_iteration=1000",
    "prompts.parts={sft: 0, preference: 1000, unlabeled: 0}",
    "prompts.evaluated=220",
    "annotation.flip_probability=0",
    "assessment.reference=null",
    "assessment.reward=false",
    "assessment.kl=false",
)
OFF, ON = "without", "with"


def study(options: Options) -> Report:
    """Train reward models by Eq. 1, and by Eq. 1 and 2; compare both on held-out pairs."""
    arms = {OFF: ("training.reward.l2_weight=0",), ON: (f"training.reward.l2_weight={WEIGHT}",)}
    made = Arms(study="l2", variant="best-of-n", shared=SHARED, arms=arms)
    made.make(options)
    drifts = {arm: [_drift(run) for run in made.opened(options, arm)] for arm in arms}
    right = {
        arm: [accuracy(pairs(answers(run))) for run in made.opened(options, arm)] for arm in arms
    }
    spreads = [[stdev(drift) for drift in seeds] for seeds in drifts.values()]
    later = [[stdev(d[len(d) // SETTLED :]) for d in seeds] for seeds in drifts.values()]
    ends = [[drift[-1] for drift in seeds] for seeds in drifts.values()]
    scales = [[_scale(run) for run in made.opened(options, arm)] for arm in arms]
    relative = [
        [spread / scale for spread, scale in zip(*both, strict=True)]
        for both in zip(later, scales, strict=True)
    ]
    rows = [
        compared("spread of the mean reward over training", spreads),
        compared("the same after the first quarter of the steps", later),
        compared("mean reward at the end", ends),
        compared("standard deviation of the rewards at the end", scales),
        compared("spread after the first quarter, in these deviations", relative),
        compared("agreement with people", list(right.values())),
    ]
    return Report(
        claim=CLAIM,
        tables=[Table(titles=[f"L2 term, weight {WEIGHT}", *arms, DIFFERENCE], rows=rows)],
        panels=[_panel(drifts)],
    )


def _drift(run: ReadOnlyRun) -> list[float]:
    """Return each step's mean reward over both answers of its pairs."""
    rows = (
        run.statistics()
        .filter(pl.col("method") == "reward", pl.col("metric").is_in(METRICS))
        .group_by("step")
        .agg(pl.col("value").mean())
        .sort("step")
        .collect()
    )
    return rows["value"].to_list()


def _scale(run: ReadOnlyRun) -> float:
    """Return the standard deviation of the preferred answers' rewards in the last step."""
    rows = run.statistics().filter(pl.col("method") == "reward", pl.col("metric") == SCALE)
    return rows.sort("step").collect()["value"][-1]


def _panel(drifts: dict[str, list[list[float]]]) -> Lines:
    series = list[Series]()
    for arm, seeds in drifts.items():
        means = [Mean.of(step) for step in zip(*seeds, strict=False)]
        series.append(_series(arm, means))
    return Lines(
        series=series,
        title="L2 term of the reward model",
        x_label="training step",
        y_label="mean reward of the step's pairs",
        level=0.0,
    )


def _series(label: str, means: Sequence[Mean]) -> Series:
    return Series(
        label=label,
        x=range(1, len(means) + 1),
        y=[mean.value for mean in means],
        low=[mean.value - mean.error for mean in means],
        high=[mean.value + mean.error for mean in means],
    )
