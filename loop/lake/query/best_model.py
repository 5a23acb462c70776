"""Which model of a run is the best, by which figure, and how surely.

Every figure has one value a held-out prompt, so that two models are compared prompt by prompt. Of
models with the same value the earlier one is the best: more training has not helped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import polars as pl

from ....configs.likely_names import did_you_mean, list_names
from ....critics.math_check import UNDECIDED, UNMARKED
from ....stores.lake import RunReader
from ....stores.records import Checkpoint
from ...data.splits import DEV, HELD_OUT
from ..statistics.clustered_error import mean_error
from .figures import COUNTS, SHARES
from .policy_figures import USUAL, Figure, Values, clusters_in, measured_on, metrics_of, values_of
from .told_figures import told_value

NOT_BETTER = ("mean_length", "kl", UNDECIDED, UNMARKED, *COUNTS)
"""Metrics of which more is not better."""


class NoSuchFigureError(ValueError):
    """A figure by which no model can be the best."""

    code = "LPF-204"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStanding:
    """A model's figure: its mean over `n` prompts, with an error over clusters of prompts."""

    checkpoint: Checkpoint
    value: float
    stderr: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BestModel:
    """The best model by a figure on a split; `standings` are all measured models, M_0 first.

    `decided`: the loop's own verdicts found it the best.
    """

    figure: Figure
    split: str
    decided: bool
    checkpoint: Checkpoint
    standings: tuple[ModelStanding, ...]

    def __str__(self) -> str:
        own = next(s for s in self.standings if s.checkpoint == self.checkpoint)
        name = self.figure.name
        error = "" if own.stderr is None else f" ± {told_value(name, own.stderr)}"
        others = [
            f"M_{s.checkpoint.iteration} {told_value(name, s.value)}"
            for s in self.standings
            if s is not own
        ]
        how = "the best of those that the loop accepted," if self.decided else "the best"
        told = f"{told_value(name, own.value)}{error}" + (" %" if name in SHARES else "")
        return f"{how} by {self.figure.meaning}: {told} ({own.n} {self.split} " + (
            f"prompts); {'; '.join(others)}" if others else "prompts); no other model was measured"
        )


def best_model(run: RunReader, made: Sequence[Checkpoint], by: str | None = None) -> BestModel:
    """Return the best of a run's models.

    Without `by` it is the one that the loop's verdicts keep as the best; for a run without
    verdicts, the best by the first of the usual figures that was measured. Dev prompts decide, if a
    run has them: a model chosen by held-out prompts could not be reported on them.

    Raises:
        NoSuchFigureError: if nothing suitable was measured, or the figure `by` was not.
    """
    every = run.scan("scores")
    has_dev = every.filter(pl.col("benchmark") == DEV).select(pl.len()).collect().item() > 0
    split = DEV if has_dev else HELD_OUT
    scores = every.filter(measured_on(split))
    measured = scores.select(pl.col("metric").unique().sort()).collect()["metric"].to_list()
    figure = _figure(run, measured, by, split)
    values = values_of(scores, figure, measured)
    found = [(c, values[c.iteration]) for c in made if c.iteration in values]
    kept = best_kept(run) if by is None else None
    place = next((i for i, (c, _) in enumerate(found) if c.iteration == kept), None)
    return _compare(figure, split, found, place, clusters_in(run))


def best_kept(run: RunReader) -> int | None:
    """Return the iteration of the policy that the loop keeps as the best; None if undecided."""
    standings = run.scan("standings").sort("iteration").select("best_iteration").collect()
    return standings["best_iteration"][-1] if standings.height else None


def _figure(run: RunReader, measured: Sequence[str], by: str | None, split: str) -> Figure:
    usual = [figure for figure in USUAL if metrics_of(figure, measured)]
    others = [m for m in measured if m not in NOT_BETTER]
    if by is None and usual:
        return usual[0]
    for figure in usual:
        if figure.name == by:
            return figure
    if by in NOT_BETTER:
        raise NoSuchFigureError(
            f"--metric {by}: more of it is not better; {_choice(usual, others)}"
        )
    if by in others:
        return Figure(name=by, meaning=by)
    what = "" if by is None else f"{by} "
    raise NoSuchFigureError(
        f"run {run.folder.name} has not measured {what or 'any metric '}on its {split} prompts by "
        f"which to choose the best model; {did_you_mean(by or '', others)}{_choice(usual, others)}"
    )


def _choice(usual: Sequence[Figure], others: Sequence[str]) -> str:
    names = [*dict.fromkeys([*(figure.name for figure in usual), *others])]
    return f"measured are {list_names(names)}" if names else "nothing is measured that could tell"


def _compare(
    figure: Figure,
    split: str,
    found: Sequence[tuple[Checkpoint, Values]],
    kept: int | None,
    clusters: Mapping[str, str],
) -> BestModel:
    means = [fmean(values.values()) for _, values in found]
    best = means.index(max(means)) if kept is None else kept
    return BestModel(
        figure=figure,
        split=split,
        decided=kept is not None,
        checkpoint=found[best][0],
        standings=tuple(
            ModelStanding(
                checkpoint=other,
                value=mean,
                stderr=_error(values, clusters),
                n=len(values),
            )
            for (other, values), mean in zip(found, means, strict=True)
        ),
    )


def _error(values: Values, clusters: Mapping[str, str]) -> float | None:
    return mean_error(list(values.values()), [clusters.get(prompt, prompt) for prompt in values])
