"""Which model of a run is the best, by which figure, and how surely.

Every figure has one value a held-out prompt, so that two models are compared prompt by prompt. Of
models with the same value the earlier one is the best: more training has gained nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

import polars as pl

from ....stores.lake import RunReader
from ....stores.records import Checkpoint
from ...data.splits import HELD_OUT

OWN_VERDICT = "verified"
SUCCESSES = ("math_accuracy", "fact_score", "general_fulfilled")
RATING = "rating:"
NOT_BETTER = ("mean_length", "facts_right", "facts_wrong", "kl", "critic_agreement")
"""Metrics of which more is not better."""

Values = Mapping[str, float]


class NoSuchFigureError(ValueError):
    """A figure by which no model can be the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure by which models are compared: its name for `--by`, and what it is."""

    name: str
    meaning: str


VERIFIED = Figure(name="verified", meaning="verified success over all held-out prompts")
WIN_RATE = Figure(name="win_rate", meaning="win-rate on the held-out prompts")
APPROVAL = Figure(
    name="approval", meaning="share of held-out answers that the critic rates 1 in all aspects"
)
USUAL = (VERIFIED, WIN_RATE, APPROVAL)
"""The figures that are tried, in order, if none is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStanding:
    """A model's figure: its mean over `n` prompts, and how far it lies behind the best.

    `errors` is the lead of the best over it in standard errors of their paired difference; None
    for the best itself, and where that error cannot be known.
    """

    checkpoint: Checkpoint
    value: float
    stderr: float | None
    n: int
    errors: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestModel:
    """The best model by a figure; `standings` are all measured models, M_0 first."""

    figure: Figure
    checkpoint: Checkpoint
    standings: tuple[ModelStanding, ...]

    def __str__(self) -> str:
        own = next(s for s in self.standings if s.checkpoint == self.checkpoint)
        error = "" if own.stderr is None else f" ± {own.stderr:.3f}"
        others = [_lead(s) for s in self.standings if s is not own]
        return f"the best by {self.figure.meaning}: {own.value:.3f}{error} ({own.n} prompts)" + (
            f"; {'; '.join(others)}" if others else "; no other model was measured"
        )


def best_model(run: RunReader, made: Sequence[Checkpoint], by: str | None = None) -> BestModel:
    """Return the best of a run's models, by the first of the usual figures that was measured.

    Raises:
        NoSuchFigureError: if nothing suitable was measured, or not what `by` names.
    """
    scores = run.scan("scores").filter(pl.col("benchmark") == HELD_OUT)
    measured = scores.select(pl.col("metric").unique().sort()).collect()["metric"].to_list()
    figure = _figure(run, measured, by)
    values = _values(scores, figure, measured)
    return _compared(figure, [(c, values[c.iteration]) for c in made if c.iteration in values])


def _figure(run: RunReader, measured: Sequence[str], by: str | None) -> Figure:
    usual = [figure for figure in USUAL if _metrics(figure, measured)]
    others = [m for m in measured if m not in NOT_BETTER]
    if by is None and usual:
        return usual[0]
    for figure in usual:
        if figure.name == by:
            return figure
    if by in NOT_BETTER:
        raise NoSuchFigureError(f"--by {by}: more of it is not better; {_choice(usual, others)}")
    if by in others:
        return Figure(name=by, meaning=f"{by} on the held-out prompts")
    what = "" if by is None else f"{by} "
    raise NoSuchFigureError(
        f"run {run.folder.name} has nothing {what}measured on its held-out prompts that tells "
        f"which model is best; {_choice(usual, others)}"
    )


def _choice(usual: Sequence[Figure], others: Sequence[str]) -> str:
    names = [*dict.fromkeys([*(figure.name for figure in usual), *others])]
    return f"measured are {', '.join(names)}" if names else "nothing is measured that could tell"


def _metrics(figure: Figure, measured: Sequence[str]) -> list[str]:
    """Return the metrics that a figure is made of, as far as they were measured."""
    if figure == VERIFIED:
        return [OWN_VERDICT] if OWN_VERDICT in measured else [m for m in SUCCESSES if m in measured]
    if figure == APPROVAL:
        return [m for m in measured if m.startswith(RATING)]
    return [m for m in measured if m == figure.name]


def _values(scores: pl.LazyFrame, figure: Figure, measured: Sequence[str]) -> dict[int, Values]:
    """Return each iteration's value of each prompt."""
    value = pl.col("value")
    one = (value == 1).all().cast(pl.Float64) if figure == APPROVAL else value.mean()
    rows = (
        scores.filter(pl.col("metric").is_in(_metrics(figure, measured)))
        .group_by("iteration", "prompt_id")
        .agg(one)
        .sort("iteration", "prompt_id")
        .collect()
    )
    found: dict[int, dict[str, float]] = {}
    for iteration, prompt, number in rows.iter_rows():
        found.setdefault(iteration, {})[prompt] = number
    return dict(found)


def _compared(figure: Figure, found: Sequence[tuple[Checkpoint, Values]]) -> BestModel:
    means = [fmean(values.values()) for _, values in found]
    best = means.index(max(means))
    checkpoint, most = found[best]
    return BestModel(
        figure=figure,
        checkpoint=checkpoint,
        standings=tuple(
            ModelStanding(
                checkpoint=other,
                value=mean,
                stderr=_error(list(values.values())),
                n=len(values),
                errors=None if other == checkpoint else _errors(most, values),
            )
            for (other, values), mean in zip(found, means, strict=True)
        ),
    )


def _errors(best: Values, other: Values) -> float | None:
    """Return the lead over another model in standard errors, over the prompts that both have."""
    leads = [best[prompt] - other[prompt] for prompt in best if prompt in other]
    error = _error(leads)
    return fmean(leads) / error if error else None


def _error(values: Sequence[float]) -> float | None:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def _lead(other: ModelStanding) -> str:
    name = f"M_{other.checkpoint.iteration} {other.value:.3f}"
    if other.errors is None:
        return name
    return f"{name} ({other.errors:.1f} standard errors of the difference behind)"
