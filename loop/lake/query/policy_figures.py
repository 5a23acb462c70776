"""The figures by which policies are compared: one value a prompt, of which more is better.

The first of the usual ones that was measured decides: the verifier's, else the annotators'
preferences, else the critic's approval.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from ....critics.status import MATH_UNDECIDED
from ....stores.lake import RunReader
from ...data.splits import EVAL_SET, HELD_OUT
from ...data.stage_names import step_benchmark
from .vocabulary import RATING, SUCCESSES

PLACE = ("iteration", "checkpoint_id", "benchmark", "prompt_id")
"""The columns that identify a score's answer: its policy and its prompt."""

Values = Mapping[str, float]
"""A figure's value of each prompt, by its id."""


VERIFIED, WIN_RATE, APPROVAL = "verified", "win_rate", "approval"
USUAL = (VERIFIED, WIN_RATE, APPROVAL)
"""The default figures, in the order in which they are tried."""


def measured_on(split: str, step: int | None = None) -> pl.Expr:
    """Return whether a row's benchmark is about prompts of a split, or of one of its named sets.

    With a `step` it is about the policy that was published at that step of the training of M_t.
    """
    own = pl.col("benchmark") == step_benchmark(split, step)
    sets = pl.col("benchmark").str.starts_with(step_benchmark(EVAL_SET, step))
    return own | sets if split == HELD_OUT else own


def first_and(split: str, step: int | None) -> pl.Expr:
    """Return whether a row is about a run's policies on a split.

    With a `step` it is about the first policy, and those that were published at that step.
    """
    if step is None:
        return measured_on(split)
    return (measured_on(split) & (pl.col("iteration") == 0)) | measured_on(split, step)


def metrics_of(figure: str, measured: Sequence[str]) -> list[str]:
    """Return the measured metrics among those that make up a figure."""
    if figure == VERIFIED:
        return [VERIFIED] if VERIFIED in measured else [m for m in SUCCESSES if m in measured]
    if figure == APPROVAL:
        return [m for m in measured if m.startswith(RATING)]
    return [m for m in measured if m == figure]


def undecided_answers(scores: pl.LazyFrame) -> pl.LazyFrame:
    """Return which answers' math could not be decided: too long to compare, or unreadable."""
    found = scores.filter((pl.col("metric") == MATH_UNDECIDED) & (pl.col("value") == 1))
    return found.select(PLACE).unique()


def value_rows(scores: pl.LazyFrame, figure: str, measured: Sequence[str]) -> pl.LazyFrame:
    """Return a figure's value for each policy, benchmark and prompt, with the answer's id.

    An answer whose math could not be decided gets no verified value, even if it passes other
    checks.
    """
    value = pl.col("value")
    one = (value == 1).all().cast(pl.Float64) if figure == APPROVAL else value.mean()
    counted = metrics_of(figure, measured)
    if set(counted) & set(SUCCESSES):
        scores = scores.join(undecided_answers(scores), on=PLACE, how="anti")
    return (
        scores.filter(pl.col("metric").is_in(counted))
        .group_by(PLACE)
        .agg(one, pl.col("candidate_id").first())
        .with_columns(figure=pl.lit(figure))
    )


def clusters_in(run: RunReader) -> dict[str, str]:
    """Return the cluster of each prompt of a run that names one."""
    named = run.scan("prompts").filter(pl.col("cluster").is_not_null())
    return dict(named.select("prompt_id", "cluster").collect().iter_rows())


def values_of(
    scores: pl.LazyFrame, figure: str, measured: Sequence[str]
) -> dict[int, dict[str, float]]:
    """Return each iteration's value of each prompt, in the order of their ids."""
    rows = value_rows(scores, figure, measured).select("iteration", "prompt_id", "value")
    found: dict[int, dict[str, float]] = {}
    for iteration, prompt, number in rows.sort("iteration", "prompt_id").collect().iter_rows():
        found.setdefault(iteration, {})[prompt] = number
    return found
