# pyright: basic
"""Plots in one style: lines with error bands, points, and estimates with their intervals.

The same numbers give the same bytes: no date, no random names in the SVG, no user style.
Matplotlib (the extra `plots`) is imported when a plot is written.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...stores.installation import pip_install
from ...stores.outputs import output_file
from ...stores.targets import file_target
from ..lake.query.forms import FormError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".svg", ".png", ".pdf")
NO_DATE = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
PANEL = (5.0, 3.4)
"""Width and height of a panel, in inches."""
PANELS_IN_A_ROW = 3
ROW = 0.22
"""The height of an estimate's row in its panel, in inches."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "lpfloop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, or one set of points, with the ends of its error band or bars if known."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: Literal["line", "points"] = "line"


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


Panel = Lines | Intervals


def check_plot(path: Path, *, force: bool) -> None:
    """Check before any work that this kind of plot can be made.

    Raises:
        FormError: if Matplotlib is not installed, or the suffix is not in KINDS.
        TargetError: if the file is there already and not `force`, or is none to replace.
    """
    if path.suffix not in KINDS:
        raise FormError(f"{path}: the name of a plot must end in {', '.join(KINDS)}")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise FormError(f"a plot needs Matplotlib: {pip_install('matplotlib')}") from error
    del mpl
    file_target(path, force=force)


def write_plot(path: Path, panels: Sequence[Panel], *, force: bool = False) -> None:
    """Write panels, up to three in a row, as SVG, PNG or PDF, by the suffix of the name.

    Raises:
        FormError: if this kind of plot is not possible.
        TargetError: if the file cannot be written, or is there already and not `force`.
    """
    check_plot(path, force=force)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        columns = min(len(panels), PANELS_IN_A_ROW)
        rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
        heights = [max(map(_height, row)) for row in rows]
        figure = Figure(figsize=(PANEL[0] * columns, sum(heights)), layout="constrained")
        grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
        for number, panel in enumerate(panels):
            _draw(figure.add_subplot(grid[divmod(number, columns)]), panel)
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix[1:], metadata=NO_DATE[path.suffix])
    output_file(path, drawn.getvalue(), force=force)


def _height(panel: Panel) -> float:
    rows = len(panel.estimates) if isinstance(panel, Intervals) else 0
    return max(PANEL[1], 1.0 + ROW * rows)


def _draw(axes: "Axes", panel: Panel) -> None:
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    if isinstance(panel, Lines):
        _draw_lines(axes, panel)
    else:
        _draw_intervals(axes, panel)


def _draw_lines(axes: "Axes", panel: Lines) -> None:
    axes.set_ylabel(panel.y_label)
    if panel.log_x:
        axes.set_xscale("log", base=2)
    if panel.level is not None:
        axes.axhline(panel.level, color="#999999", linestyle="--", linewidth=0.8)
    for number, series in enumerate(panel.series):
        colour = COLOURS[number % len(COLOURS)]
        marker = MARKERS[number % len(MARKERS)]
        line = "-" if series.style == "line" else ""
        axes.plot(
            series.x,
            series.y,
            label=series.label,
            color=colour,
            marker=marker,
            markersize=4,
            linestyle=line,
        )
        if len(series.low) and series.style == "line":
            axes.fill_between(
                series.x, series.low, series.high, color=colour, alpha=0.18, linewidth=0
            )
        elif len(series.low):
            axes.vlines(series.x, series.low, series.high, color=colour, linewidth=1)
    if len(panel.series) > 1:
        axes.legend()


def _draw_intervals(axes: "Axes", panel: Intervals) -> None:
    rows = range(len(panel.estimates))
    if panel.level is not None:
        axes.axvline(panel.level, color="#999999", linestyle="--", linewidth=0.8)
    axes.hlines(
        rows,
        [each.low for each in panel.estimates],
        [each.high for each in panel.estimates],
        color=COLOURS[0],
        linewidth=1.5,
    )
    axes.plot([each.value for each in panel.estimates], rows, "o", color=COLOURS[0], markersize=4)
    axes.set_yticks(rows, [each.label for each in panel.estimates])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
