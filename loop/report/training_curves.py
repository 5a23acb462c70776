# pyright: basic
"""The curves of a run's trainings: all steps of all iterations on one axis, resumes included.

A step that was made again after a crash is stored once, as it was last. If there are more steps
than can be drawn, neighbours are drawn as one point: their mean, with their lowest and highest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ...policies.trainers.training_fit import SURVIVAL
from ...stores.lake import RunReader
from ..evaluation.panels import Lines
from .report_plot import ReportPlot, names_of
from .run_rows import are_several, each_line, none_made, rows_of, titled

POINTS = 400
"""The most points of a line: a plot is about 400 pixels wide."""
READING = (
    "All trainings behind each other, a band from the lowest to the highest of neighbouring steps: "
    "a loss that does not fall, margins that explode, or chosen answers that become less probable "
    "than by their reference are what to look for."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curves:
    """Metrics that are drawn in one panel; metrics that end a name are listed in the legend."""

    title: str
    metrics: Mapping[str, str]
    y_label: str
    level: float | None = None


CURVES = (
    _Curves(title="Loss", metrics={"loss": "loss"}, y_label="loss"),
    _Curves(
        title="Margin of rewards", metrics={"rewards/margins": "margin"}, y_label="reward", level=0
    ),
    _Curves(
        title="The chosen answer is ahead",
        metrics={"rewards/accuracies": "accuracy", "accuracy": "accuracy"},
        y_label="share of pairs",
        level=0.5,
    ),
    _Curves(
        title="Learning rate", metrics={"learning_rate": "learning rate"}, y_label="learning rate"
    ),
    _Curves(
        title="Update survival", metrics={SURVIVAL: "survival"}, y_label="share published", level=1
    ),
    _Curves(title="KL from the reference", metrics={"kl": "KL"}, y_label="nats", level=0),
    _Curves(title="Reward of the samples", metrics={"reward": "reward"}, y_label="reward"),
    _Curves(
        title="What judges gave the samples",
        metrics={"score/critic": "critic", "score/verifier": "verifier"},
        y_label="mean score",
    ),
    _Curves(
        title="Samples that a judge left unscored",
        metrics={"unscored/critic": "critic", "unscored/verifier": "verifier"},
        y_label="share",
    ),
    _Curves(
        title="Groups whose answers are worth the same",
        metrics={"groups/even": "groups"},
        y_label="groups",
    ),
    _Curves(
        title="Log-probability of the answers",
        metrics={
            "token_logps/chosen": "chosen",
            "token_logps/rejected": "rejected",
        },
        y_label="nats a token",
    ),
    _Curves(
        title="Reward of chosen and of rejected",
        metrics={"rewards/chosen": "chosen", "rewards/rejected": "rejected"},
        y_label="beta x log-ratio to the reference",
        level=0,
    ),
    _Curves(
        title="Chosen answers below their reference",
        metrics={"token_logps/chosen_below_ref": "below"},
        y_label="share of pairs",
    ),
)
DRAWN = [metric for curves in CURVES for metric in curves.metrics]


def training_plot(runs: Sequence[RunReader]) -> ReportPlot:
    """Return the plot of the numbers of all steps."""
    rows = rows_of(runs, step_rows)
    return ReportPlot(
        name="training",
        title="Training: every step",
        reading=READING,
        command=f'lpfloop sql "from statistics order by step" --run {names_of(runs)[0]}',
        rows=rows,
        panels=[panel for curves in CURVES for panel in _panels(rows, curves)],
        missing="" if rows.height else none_made(runs, "step of a training"),
    )


def step_rows(run: RunReader) -> pl.DataFrame:
    """Return at most `POINTS` points of each metric, over the steps of all trainings.

    `at` counts the steps from the first training on, `value` is the mean of the `steps` that end
    at `step` of the iteration's training, `low` and `high` their lowest and highest.
    """
    columns = {"iteration", "method", "step", "metric", "value"}
    told = run.scan("statistics", columns=columns).filter(pl.col("metric").is_in(DRAWN))
    lengths = (
        run.scan("statistics", columns=columns)
        .group_by("iteration", "method")
        .agg(length=pl.col("step").max())
        .collect(engine="streaming")
        .sort("iteration", "method")
        .with_columns(before=pl.col("length").cum_sum() - pl.col("length"))
    )
    width = -(-int(lengths["length"].sum()) // POINTS) or 1
    at = pl.col("before") + pl.col("step")
    return (
        told.join(lengths.lazy(), on=["iteration", "method"])
        .with_columns(at=at, point=(at - 1) // width)
        .group_by("iteration", "method", "metric", "point")
        .agg(
            pl.col("at", "step").max(),
            pl.col("value").mean(),
            low=pl.col("value").min(),
            high=pl.col("value").max(),
            steps=pl.col("at").n_unique(),
        )
        .drop("point")
        .collect(engine="streaming")
        .sort("metric", "at", "method")
    )


def _panels(rows: pl.DataFrame, curves: _Curves) -> list[Lines]:
    """Return the panel of these curves, if one of them was recorded."""
    names = pl.col("metric").replace_strict(curves.metrics, default=None).alias("name")
    told = rows.filter(pl.col("metric").is_in(list(curves.metrics))).with_columns(names)
    label = "method" if len(set(curves.metrics.values())) == 1 else "name"
    band = ("low", "high") if (told["high"] > told["low"]).any() else ()
    return [
        Lines(
            series=series,
            title=titled(curves.title, name),
            x_label="step",
            y_label=curves.y_label,
            level=curves.level,
            breaks=_begins(rows),
        )
        for name, series in each_line(told, label, "value", x="at", band=band)
    ]


def _begins(rows: pl.DataFrame) -> list[float]:
    """Return the x at which each later training begins, if the rows are of one run."""
    if are_several(rows):
        return []
    ends = rows.group_by("iteration", "method").agg(pl.col("at").max())
    return [at + 0.5 for at in sorted(ends["at"])[:-1]]
