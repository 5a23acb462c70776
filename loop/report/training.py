# pyright: basic
"""The curves of a run's trainings: all steps of all iterations on one axis, resumes included.

A step that was made again after a crash is stored once, as it was last. If there are more steps
than can be drawn, neighbours are drawn as one point: their mean, with their lowest and highest.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from ...policies.trainers.training_fit import SURVIVAL
from ...stores.lake import RunReader
from ..evaluation.plots import Lines
from .section import Section, series_by

POINTS = 400
"""The most points of a line: a plot is about 400 pixels wide."""
Curves = tuple[str, str, Mapping[str, str], float | None]
"""A panel's title, the name of its values, the metrics that it draws by label, and a level."""
CURVES: Sequence[Curves] = (
    ("Loss", "loss", {"loss": "loss"}, None),
    ("Margin of rewards", "reward", {"rewards/margins": "margin"}, 0),
    (
        "The chosen answer is ahead",
        "share of pairs",
        {"rewards/accuracies": "accuracy", "accuracy": "accuracy"},
        0.5,
    ),
    ("Learning rate", "learning rate", {"learning_rate": "learning rate"}, None),
    ("Update survival", "share published", {SURVIVAL: "survival"}, 1),
    ("KL from the reference", "nats", {"kl": "KL"}, 0),
    ("Reward of the samples", "reward", {"reward": "reward"}, None),
    (
        "What judges gave the samples",
        "mean score",
        {"score/critic": "critic", "score/verifier": "verifier"},
        None,
    ),
    (
        "Samples that a judge left unscored",
        "share",
        {"unscored/critic": "critic", "unscored/verifier": "verifier"},
        None,
    ),
    ("Groups whose answers are worth the same", "groups", {"groups/even": "groups"}, None),
    (
        "Log-probability of the answers",
        "nats a token",
        {"token_logps/chosen": "chosen", "token_logps/rejected": "rejected"},
        None,
    ),
    (
        "Reward of chosen and of rejected",
        "beta x log-ratio to the reference",
        {"rewards/chosen": "chosen", "rewards/rejected": "rejected"},
        0,
    ),
    (
        "Chosen answers below their reference",
        "share of pairs",
        {"token_logps/chosen_below_ref": "below"},
        None,
    ),
)
DRAWN = [metric for _, _, metrics, _ in CURVES for metric in metrics]


def training_section(run: RunReader) -> Section:
    """Return the curves of the numbers of all steps."""
    rows = step_rows(run)
    return Section(
        name="training",
        title="Training: every step",
        reading=(
            "All trainings behind each other, a band from the lowest to the highest of "
            "neighbouring steps: a loss that does not fall, margins that explode, or chosen "
            "answers that become less probable than by their reference are what to look for."
        ),
        command=f'lpfloop sql "from statistics order by step" --run {run.folder.name}',
        tables={"training": rows},
        panels=[panel for curves in CURVES for panel in _panels(rows, curves)],
        missing="there is no step of a training",
    )


def step_rows(run: RunReader) -> pl.DataFrame:
    """Return at most `POINTS` points of each metric, over the steps of all trainings.

    `at` counts the steps from the first training on, `value` is the mean of the `steps` that end
    at `step` of the iteration's training, `low` and `high` their lowest and highest.
    """
    columns = {"iteration", "method", "step", "metric", "value"}
    rows = run.scan("statistics", columns=columns).filter(pl.col("metric").is_in(DRAWN))
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
        rows.join(lengths.lazy(), on=["iteration", "method"])
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


def _panels(rows: pl.DataFrame, curves: Curves) -> list[Lines]:
    """Return the panel of these curves, if one of them was recorded."""
    title, y_label, metrics, level = curves
    names = pl.col("metric").replace_strict(metrics, default=None).alias("name")
    drawn = rows.filter(pl.col("metric").is_in(list(metrics))).with_columns(names)
    if drawn.is_empty():
        return []
    label = "method" if len(set(metrics.values())) == 1 else "name"
    band = ("low", "high") if (drawn["high"] > drawn["low"]).any() else ()
    ends = rows.group_by("iteration", "method").agg(pl.col("at").max())
    return [
        Lines(
            series=series_by(drawn, label, "value", x="at", band=band),
            title=title,
            x_label="step",
            y_label=y_label,
            level=level,
            breaks=[at + 0.5 for at in sorted(ends["at"])[:-1]],
        )
    ]
