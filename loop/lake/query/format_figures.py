"""How figures are written everywhere: one name each, in one unit, with one form of an interval."""

from collections.abc import Iterable

from ...data.splits import DEV, HELD_OUT
from ...data.text import one_line
from .model_figures import ModelFigure
from .vocabulary import term_of

SPLITS = {HELD_OUT: "the held-out prompts (test)", DEV: "the dev prompts (they decide in the loop)"}
"""The display names of the splits."""
BRIEF_SPLITS = {HELD_OUT: "test", DEV: "dev"}
"""The names of the splits in a line of the terminal."""
LONGEST = 30
"""The most characters of a figure's name."""


def figure_name(figure: str) -> str:
    """Return the display name of a figure."""
    return one_line(term_of(figure).label or figure, limit=LONGEST)


def figure_label(figure: str) -> str:
    """Return the display name of a figure, with its unit."""
    return f"{figure_name(figure)} %" if term_of(figure).share else figure_name(figure)


def split_name(split: str) -> str:
    """Return the display name of a split's prompts."""
    return SPLITS.get(split, split)


def scale_value(figure: str, value: float) -> float:
    """Return a value in its display unit: shares in percent."""
    return _scale(figure)[0] * value


def format_value(figure: str, value: float) -> str:
    """Return a value of a figure: in percent if it is a share."""
    factor, decimals = _scale(figure)
    return f"{factor * value:.{decimals}f}"


def format_difference(figure: str, value: float) -> str:
    """Return how much more of a figure there is, with its sign."""
    factor, decimals = _scale(figure)
    return f"{factor * value:+.{decimals}f}"


def format_bounds(figure: str, low: float | None, high: float | None) -> str:
    """Return the bounds of a difference; empty if one is unknown."""
    if low is None or high is None:
        return ""
    return f"[{format_difference(figure, low)}, {format_difference(figure, high)}]"


def format_figure(row: ModelFigure | None) -> str:
    """Return a model's figure, or a dash if it was not measured."""
    return "-" if row is None else format_value(row.figure, row.value)


def format_change(row: ModelFigure | None) -> str:
    """Return how much a model has changed, with the bounds; empty for the first itself."""
    if row is None or row.change is None or row.iteration == row.against:
        return ""
    change = format_difference(row.figure, row.change)
    return f"{change} {format_bounds(row.figure, row.change_low, row.change_high)}".rstrip()


def format_interval(row: ModelFigure | None) -> str:
    """Return the interval of a model's figure itself."""
    if row is None or row.low is None or row.high is None:
        return ""
    return f"[{format_value(row.figure, row.low)}, {format_value(row.figure, row.high)}]"


def format_level(level: float) -> str:
    """Return the one-sided error level of a bound, in percent."""
    return f"{100 * level:.2g} %"


def format_levels(levels: Iterable[float | None]) -> str | None:
    """Return the levels of some bounds as text; None without any."""
    known = sorted(level for level in levels if level is not None)
    labels = dict.fromkeys(map(format_level, known))
    return f"one-sided level {' or '.join(labels)} per bound" if labels else None


def _scale(figure: str) -> tuple[float, int]:
    term = term_of(figure)
    return (100.0 if term.share else 1.0), term.decimals
