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
from .figures import NOT_BETTER, USUAL, Figure, measured_metrics, metrics_of, values_of

Values = Mapping[str, float]


class NoSuchFigureError(ValueError):
    """A figure by which no model can be the best."""


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
    measured = measured_metrics(scores)
    figure = _figure(run, measured, by)
    values = _values(scores, figure, measured)
    return _compared(figure, [(c, values[c.iteration]) for c in made if c.iteration in values])


def _figure(run: RunReader, measured: Sequence[str], by: str | None) -> Figure:
    usual = [figure for figure in USUAL if metrics_of(figure, measured)]
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


def _values(scores: pl.LazyFrame, figure: Figure, measured: Sequence[str]) -> dict[int, Values]:
    """Return each iteration's value of each prompt."""
    rows = values_of(scores, figure, measured).select("iteration", "prompt_id", "value")
    found: dict[int, dict[str, float]] = {}
    for iteration, prompt, number in rows.sort("iteration", "prompt_id").collect().iter_rows():
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
