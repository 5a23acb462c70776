"""Reward models from grades in four aspects, or from one overall score (UltraFeedback 3.1)."""

from collections.abc import Mapping, Sequence

import polars as pl

from lpfloop.loop.evaluation.panels import Lines, Series
from lpfloop.loop.library.read_only_run import ReadOnlyRun

from .arms import DIFFERENCE, Arms, Mean, Options, Report, Table, compared
from .held_out import accuracy, answers, pairs

CLAIM = "Fine-grained reward models beat overall-score ones on held-out preferences."
SHARED = (
    "prompts.evaluated=220",
    "assessment.reference=null",
    "assessment.reward=false",
    "assessment.kl=false",
)
RULES: Mapping[str, Sequence[str]] = {
    rule: (f"recipe.binarisation={rule}",) for rule in ("overall", "mean-vs-random")
}
TRUE = "expected_true_score"
BEST_OF = "best-of-"


def study(options: Options) -> Report:
    """Train a reward model on each kind of grades; compare both with people."""
    made = Arms(study="fine-grained", variant="ultrafeedback-bon", shared=SHARED, arms=RULES)
    made.make(options)
    right = {
        arm: [accuracy(pairs(answers(run))) for run in made.opened(options, arm)] for arm in RULES
    }
    curves = {arm: [_curve(run) for run in made.opened(options, arm)] for arm in RULES}
    rows = [
        compared("agreement with people, held-out pairs", list(right.values())),
        *_best_of(list(curves.values())),
    ]
    titles = ["reward model of", *(f"`{rule}`" for rule in RULES), DIFFERENCE]
    return Report(
        claim=CLAIM,
        tables=[Table(titles=titles, rows=rows)],
        panels=[_panel(curves)],
    )


def _curve(run: ReadOnlyRun) -> dict[int, float]:
    """Return the true score of the best of n answers by the reward model, for each n."""
    rows = (
        run.evaluations()
        .filter(pl.col("metric") == TRUE, pl.col("benchmark").str.starts_with(BEST_OF))
        .select(n=pl.col("benchmark").str.strip_prefix(BEST_OF).cast(pl.Int64), value="value")
        .sort("n")
        .collect()
    )
    return dict(rows.iter_rows())


def _best_of(curves: Sequence[Sequence[Mapping[int, float]]]) -> list[list[str]]:
    return [
        compared(f"true score of the best of {n}", [[curve[n] for curve in of] for of in curves])
        for n in curves[0][0]
    ]


def _panel(curves: Mapping[str, Sequence[Mapping[int, float]]]) -> Lines:
    series = list[Series]()
    for arm, seeds in curves.items():
        means = {n: Mean.of(curve[n] for curve in seeds) for n in seeds[0]}
        series.append(
            Series(
                label=arm,
                x=list(means),
                y=[mean.value for mean in means.values()],
                low=[mean.value - mean.error for mean in means.values()],
                high=[mean.value + mean.error for mean in means.values()],
            )
        )
    return Lines(
        series=series,
        title="best of n by a reward model of grades",
        x_label="n",
        y_label="true score",
        log_x=True,
    )
