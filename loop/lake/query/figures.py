"""The figures that tell how good a policy's answers are, prompt by prompt, under one name each.

What is verified has one name for every task (`verified`), what the critic says is one share
(`approval`), and everything else that was measured keeps its metric's name. Nothing is stored for
it: the figures are computed from the scores, so that runs from before have them, too.
"""

from collections.abc import Sequence

import polars as pl

from ....critics.math_check import UNDECIDED, UNMARKED
from ....stores.lake import RunReader
from ...data.splits import DEV, HELD_OUT, exam_benchmark, exam_of
from ..statistics.share_interval import NORMAL, share_interval
from .policy_figures import SUCCESSES, USUAL, Figure, measured_on, metrics_of, value_rows

LENGTH = "mean_length"
COUNTS = (
    *("sentences_right", "sentences_wrong", "critic_agreement"),
    *("facts_supported", "facts_not_supported", "facts_irrelevant", "facts_unread", "abstained"),
)
"""Metrics that are no figure of a policy: parts of one, and what is said of the critic."""


class NotMeasuredError(ValueError):
    """A split or a figure of which a run has nothing."""

    code = "LPF-203"


CONTROLLED = "length_controlled_win_rate"
ORDER = ("verified", "approval", "reward", "win_rate", CONTROLLED, "true_score", "kl")
"""The figures that are told first; then others by name, and the length."""
SHARES = (
    *("verified", "approval", "win_rate", CONTROLLED),
    *(*SUCCESSES, UNDECIDED, UNMARKED, "json_valid", "self_identified", "passed"),
    *("checks_fulfilled", "general_fulfilled_loose", "checks_fulfilled_loose"),
    "critic_agreement",
)
"""The figures between 0 and 1 that are told in percent."""


def figure_interval(
    figure: str, value: float, error: float | None, n: int
) -> tuple[float, float] | None:
    """Return the 95 % interval of a figure over `n` prompts with this error; None without one.

    A share's lies between 0 and 1. The error is that of clusters of prompts.
    """
    if figure in SHARES:
        return share_interval(value, error, n)
    return None if error is None else (value - NORMAL * error, value + NORMAL * error)


def measured_metrics(scores: pl.LazyFrame) -> list[str]:
    """Return the names of the metrics among scores."""
    return scores.select(pl.col("metric").unique().sort()).collect()["metric"].to_list()


def figure_values(run: RunReader, split: str, only: str | None = None) -> pl.DataFrame:
    """Return all figures of a run on a split: a row for each policy, prompt and figure.

    A row has what its prompt is counted with: `exam`, `task`, `family`, `source` and `cluster`; a
    prompt of no cluster is one by itself.

    Raises:
        NotMeasuredError: if nothing was measured there, or not `only`.
    """
    scores = run.scan("scores").filter(measured_on(split))
    measured = measured_metrics(scores)
    figures = _figures(measured)
    if not figures:
        raise NotMeasuredError(f"run {run.folder.name} has nothing measured on {split!r}")
    wanted = [figure for figure in figures if only in (None, figure.name)]
    if not wanted:
        known = ", ".join(figure.name for figure in figures)
        raise NotMeasuredError(
            f"run {run.folder.name} has no figure {only!r} on {split!r}: it has {known}"
        )
    values = pl.concat([value_rows(scores, figure, measured) for figure in wanted])
    prompts = run.scan("prompts").select("prompt_id", "exam", "task", "family", "source", "cluster")
    return (
        values.join(prompts.unique("prompt_id", keep="first"), on="prompt_id", how="left")
        .with_columns(pl.coalesce("cluster", "prompt_id"))
        .sort("prompt_id", "figure", "iteration")
        .collect()
    )


def _figures(measured: Sequence[str]) -> list[Figure]:
    """Return what can be told of the metrics measured, in the order in which it is told."""
    used = {m for figure in USUAL for m in metrics_of(figure, measured)} | set(COUNTS)
    names = [f.name for f in USUAL if metrics_of(f, measured)]
    names += [metric for metric in measured if metric not in used]
    usual = {figure.name: figure for figure in USUAL}
    return [usual.get(n, Figure(name=n, meaning=n)) for n in sorted(names, key=place_of)]


def place_of(figure: str) -> tuple[int, str]:
    """Return where a figure stands among others: the first are those by which models are chosen."""
    if figure in ORDER:
        return ORDER.index(figure), ""
    return len(ORDER) + (figure == LENGTH), figure


def deciding(measured: Sequence[str]) -> Figure | None:
    """Return the figure by which models are compared if none is asked for, of those measured."""
    return next((figure for figure in USUAL if metrics_of(figure, measured)), None)


def deciding_of(run: RunReader, split: str) -> Figure | None:
    """Return the figure by which a run's models are compared on a split if none is asked for."""
    return deciding(measured_metrics(run.scan("scores").filter(measured_on(split))))


def shown_split(run: RunReader, wanted: str | None = None) -> str | None:
    """Return the split whose figures are shown: the one asked for, else held-out, else dev.

    A set of held-out prompts can be asked for by its name.

    None if nothing was measured.

    Raises:
        NotMeasuredError: if nothing was measured on the one asked for.
    """
    numbers = run.scan("evaluations").select(pl.col("benchmark").unique()).collect()
    measured = numbers["benchmark"].to_list()
    found = {*measured, *(HELD_OUT for name in measured if exam_of(name) is not None)}
    if wanted is not None and exam_benchmark(wanted) in found:
        return exam_benchmark(wanted)
    if wanted is not None and wanted not in found:
        sets = sorted(exam for name in measured if (exam := exam_of(name)) is not None)
        splits = [split for split in (HELD_OUT, DEV) if split in found]
        known = ", ".join([*splits, *sets]) or "nothing"
        raise NotMeasuredError(
            f"run {run.folder.name} has nothing measured on the split {wanted!r}: it has {known}"
        )
    return wanted or next((split for split in (HELD_OUT, DEV) if split in found), None)
