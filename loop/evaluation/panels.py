"""The contents of a plot: panels of lines, points, intervals, bars and the like, as plain numbers.

`plots.py` draws them; a page can make them without Matplotlib.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, or one set of points, with the ends of its error band or bars if known."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: Literal["line", "points"] = "line"
    names: Sequence[str] = ()
    """The label of each point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A panel of series over one x axis."""

    series: Sequence[Series]
    title: str
    x_label: str
    y_label: str
    log_x: bool = False
    """Powers of two, as for n of best-of-n."""
    level: float | None = None
    """A dashed horizontal line, as at 50 %."""
    whole_x: bool = False
    """Whether x counts something, such as iterations: only whole numbers are marked."""
    breaks: Sequence[float] = ()
    """Dotted vertical lines, for example at steps at which a training was resumed."""
    diagonal: bool = False
    """A dashed line on which x and y are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedValue:
    """One value with its interval."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """A panel of estimates, one below the other."""

    estimates: Sequence[PlottedValue]
    title: str
    x_label: str
    level: float | None = None
    """A dashed vertical line, as at 50 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heights:
    """The bars of one colour: a height for each group of bars, or for each bin."""

    label: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A panel of bars: in each group the bars of all parts, side by side or stacked."""

    groups: Sequence[str]
    parts: Sequence[Heights]
    title: str
    y_label: str
    """The name of the bars' lengths."""
    x_label: str = ""
    stacked: bool = False
    lying: bool = False
    """Whether groups are listed downwards: for long names, and for many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A panel of distributions over each other; `edges` has one value more than each of them."""

    edges: Sequence[float]
    parts: Sequence[Heights]
    title: str
    x_label: str
    y_label: str = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A panel with a value for every two of some names, None if it is missing."""

    names: Sequence[str]
    values: Sequence[Sequence[float | None]]
    title: str
    x_label: str
    """The name of the values."""


Panel = Lines | Intervals | Bars | Histogram | Matrix
