"""Which model of a run is the best, by which figure, and whether that is significant.

Of models with the same value the earlier one is the best: more training has not helped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ....stores.lake import RunReader
from ....stores.records import Checkpoint
from ...data.splits import DEV, HELD_OUT
from .figures import deciding_of
from .format_figures import figure_name, format_figure, format_interval
from .model_figures import ALL, ModelFigure, run_results
from .vocabulary import SHARES


class NoSuchFigureError(ValueError):
    """A run without a figure by which a model can be the best."""

    code = "LPF-204"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestModel:
    """The best model by a figure on a split; `values` has the figure of each measured model.

    `decided`: the loop's own verdicts found it the best.
    """

    figure: str
    split: str
    decided: bool
    checkpoint: Checkpoint
    values: Mapping[int, ModelFigure]

    def __str__(self) -> str:
        own = self.values[self.checkpoint.iteration]
        others = [f"M_{n} {format_figure(row)}" for n, row in self.values.items() if row is not own]
        how = "the best of those that the loop accepted," if self.decided else "the best"
        unit = " %" if own.figure in SHARES else ""
        return (
            f"{how} by {figure_name(self.figure)}: {format_figure(own)}{unit} "
            f"{format_interval(own)} ({own.n} {self.split} prompts); "
            f"{'; '.join(others) or 'no other model was measured'}"
        )


def best_model(run: RunReader, made: Sequence[Checkpoint]) -> BestModel:
    """Return the best of a run's models.

    It is the one that the loop's verdicts keep as the best; for a run without verdicts, the best by
    the figure that compares its models. Dev prompts decide, if a run has them: a model chosen by
    held-out prompts could not be reported on them.

    Raises:
        NoSuchFigureError: if no such figure was measured.
    """
    on_dev = run.scan("scores").filter(pl.col("benchmark") == DEV).head(1).collect().height
    split = DEV if on_dev else HELD_OUT
    figure = deciding_of(run, split)
    if figure is None:
        raise NoSuchFigureError(
            f"run {run.folder.name} has not measured any metric on its {split} prompts by which to "
            "choose the best model"
        )
    values = run_results(run, split=split, by=(ALL,), figure=figure).figure(figure)
    kept = best_kept(run)
    best = kept if kept in values else max(values, key=lambda n: (values[n].value, -n))
    return BestModel(
        figure=figure,
        split=split,
        decided=best == kept,
        checkpoint=next(c for c in made if c.iteration == best),
        values=values,
    )


def best_kept(run: RunReader) -> int | None:
    """Return the iteration of the policy that the loop keeps as the best; None if undecided."""
    standings = run.scan("standings").sort("iteration").select("best_iteration").collect()
    return standings["best_iteration"][-1] if standings.height else None
