"""How a figure of a run's models is told: its name, its value, its change with the interval."""

from ...data.sanitize import one_line
from ...data.short_id import short_id
from .figures import SHARES
from .flips import LostMost
from .model_figures import ModelFigure

LABELS = {
    "win_rate": "win-rate",
    "length_controlled_win_rate": "at equal length",
    "true_score": "true score",
    "kl": "KL to M_0",
    "json_valid": "valid JSON",
    "self_identified": "identity",
    "mean_length": "tokens",
}
"""What figures are called, if not by their names."""
DECIMALS = {"reward": 2, "true_score": 2, "kl": 2}
LONGEST = 22
"""The most characters of a figure's name."""


def figure_label(figure: str) -> str:
    """Return what a figure is called, with the unit in which it is told."""
    name = one_line(LABELS.get(figure, figure), limit=LONGEST)
    return f"{name} %" if figure in SHARES else name


def told_value(figure: str, value: float) -> str:
    """Return a value of a figure: in percent if it is a share."""
    factor, decimals = _scale(figure)
    return f"{factor * value:.{decimals}f}"


def told_of(row: ModelFigure | None) -> str:
    """Return a model's figure, or a dash where it was not measured."""
    return "-" if row is None else told_value(row.figure, row.value)


def told_change(row: ModelFigure | None) -> str:
    """Return how much a model has changed, with the interval: nothing of the first itself."""
    if row is None or row.change is None or row.iteration == row.against:
        return ""
    return f"{told_difference(row.figure, row.change)}{_between(row)}"


def told_interval(row: ModelFigure | None) -> str:
    """Return the interval of a model's figure itself."""
    if row is None or row.low is None or row.high is None:
        return ""
    return f"[{told_value(row.figure, row.low)}, {told_value(row.figure, row.high)}]"


def lost_line(lost: LostMost, where: str = "") -> str:
    """Say which group of prompts lost most, and two prompts of it to look at.

    `where` is the option that names the lake, after a space.
    """
    change = lost.change
    group = change.group if change.group == change.task else f"{change.group} ({change.task})"
    label = figure_label(lost.figure)
    figures = f"{told_value(lost.figure, change.before)} to {told_value(lost.figure, change.after)}"
    shown = " and ".join(f"`lpfloop show {short_id(prompt)}{where}`" for prompt in change.worse)
    return one_line(
        f"lost most from M_{lost.before} to M_{lost.after}: {group}, {label} {figures} on "
        f"{change.n:,} prompts ({change.lost:,} worse, {change.gained:,} better); {shown}",
        limit=400,
    )


def _between(row: ModelFigure) -> str:
    if row.change_low is None or row.change_high is None:
        return ""
    low, high = (told_difference(row.figure, end) for end in (row.change_low, row.change_high))
    return f" [{low}, {high}]"


def told_difference(figure: str, value: float) -> str:
    """Return how much more of a figure there is, with its sign."""
    factor, decimals = _scale(figure)
    return f"{factor * value:+.{decimals}f}"


def _scale(figure: str) -> tuple[float, int]:
    return (100.0, 1) if figure in SHARES else (1.0, DECIMALS.get(figure, 1))
