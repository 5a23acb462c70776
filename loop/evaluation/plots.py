# pyright: basic
"""Plots in one style, drawn by Matplotlib.

A panel holds plain numbers and draws itself. The same numbers give the same bytes: no date, no
random names in the SVG, no user style. Matplotlib (the extra `plots`) is imported when a plot is
drawn.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...stores.installation import pip_install
from ...stores.outputs import file_target, output_file
from ..data.text import one_line
from ..lake.query.forms import FormError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".svg", ".png", ".pdf")
NO_DATE = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
PANEL = (4.6, 3.2)
"""Width and height of a panel, in inches: readable on narrow pages, too."""
PANELS_IN_A_ROW = 3
ROW = 0.22
"""The height of an interval's row and of a legend's line, in inches."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LABEL, SHORT = 40, 28
"""The most characters of a label, and of a label next to its point."""
LEGEND = 10
"""The most parts in a panel's legend; of more, only the first are listed."""
WITHIN, COLUMNS = 4, 2
"""The most parts named within the panel; a larger legend is below it, in columns."""
MARKED = 60
"""Lines of more points than these are drawn without a mark at each."""
REFERENCE: Any = {"color": "#999999", "linestyle": "--", "linewidth": 0.8}
"""The style of a line to compare with, as at 50 %."""
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.fonttype": "none",
    "svg.hashsalt": "lpfloop",
    # Names of tasks and models may contain a dollar sign, and are not formulas.
    "text.parse_math": False,
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
    names: Sequence[str] = ()
    """The label of each point."""

    def draw(self, axes: "Axes", number: int) -> Any:
        """Draw it with its errors; return the legend's handle."""
        colour = COLOURS[number % len(COLOURS)]
        (drawn,) = axes.plot(
            self.x,
            self.y,
            color=colour,
            marker=MARKERS[number % len(MARKERS)] if len(self.x) <= MARKED else "",
            markersize=4,
            linestyle="-" if self.style == "line" else "",
        )
        if len(self.low) and self.style == "line":
            axes.fill_between(self.x, self.low, self.high, color=colour, alpha=0.18, linewidth=0)
        elif len(self.low):
            axes.vlines(self.x, self.low, self.high, color=colour, linewidth=1)
        for x, y, name in zip(self.x, self.y, self.names, strict=False):
            axes.annotate(label_of(name), (x, y), (4, 4), textcoords="offset points", fontsize=7)
        return drawn


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
    """Dotted vertical lines, for example between trainings."""
    diagonal: bool = False
    """A dashed line on which x and y are equal."""

    def draw(self, axes: "Axes") -> None:
        """Draw the panel's contents."""
        if self.log_x:
            axes.set_xscale("log", base=2)
        if self.whole_x:
            axes.locator_params(axis="x", integer=True)
            counts = {x for series in self.series for x in series.x}
            if len(counts) == 1:
                (only,) = counts
                axes.set_xlim(only - 1, only + 1)
        if self.level is not None:
            axes.axhline(self.level, **REFERENCE)
        if self.diagonal:
            both = [value for series in self.series for value in (*series.x, *series.y)]
            ends = (min(both, default=0.0), max(both, default=1.0))
            axes.plot(ends, ends, **REFERENCE)
        for place in self.breaks:
            axes.axvline(place, color="#999999", linestyle=":", linewidth=0.8)
        drawn = [series.draw(axes, number) for number, series in enumerate(self.series)]
        _name_parts(axes, drawn, [series.label for series in self.series])


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
    y_label: str = ""

    def draw(self, axes: "Axes") -> None:
        """Draw the panel's contents."""
        rows = range(len(self.estimates))
        if self.level is not None:
            axes.axvline(self.level, **REFERENCE)
        lows, highs = ([getattr(e, end) for e in self.estimates] for end in ("low", "high"))
        axes.hlines(rows, lows, highs, color=COLOURS[0], linewidth=1.5)
        axes.plot([e.value for e in self.estimates], rows, "o", color=COLOURS[0], markersize=4)
        axes.set_yticks(rows, [label_of(e.label, SHORT) for e in self.estimates])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A panel of distributions over each other, by label.

    `edges` has one value more than each of them.
    """

    edges: Sequence[float]
    shares: Mapping[str, Sequence[float]]
    title: str
    x_label: str
    y_label: str = "share of each"

    def draw(self, axes: "Axes") -> None:
        """Draw the panel's contents."""
        drawn: list[Any] = []
        for values, colour in zip(self.shares.values(), COLOURS, strict=False):
            shape: Any = {"values": values, "edges": self.edges, "color": colour}
            drawn.append(axes.stairs(**shape, fill=True, alpha=0.25))
            axes.stairs(**shape, linewidth=1.2)
        _name_parts(axes, drawn, list(self.shares))


Panel = Lines | Intervals | Histogram


def label_of(text: str, limit: int = LABEL) -> str:
    """Return a text as a label: on one line, with nothing hidden, and not too long."""
    line = one_line(text, limit=len(text))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _height(panel: Panel) -> float:
    """Return a panel's height in inches: enough for its rows, and for a legend below it."""
    if isinstance(panel, Intervals):
        return max(PANEL[1], 1.0 + ROW * len(panel.estimates))
    parts = len(panel.series if isinstance(panel, Lines) else panel.shares)
    below = -(-min(parts, LEGEND + 1) // COLUMNS) if parts > WITHIN else 0
    return PANEL[1] + ROW * below


def _name_parts(axes: "Axes", drawn: Sequence[Any], labels: Sequence[str]) -> None:
    """Draw a legend if there is more than one part, below the panel if there are many."""
    if len(drawn) < 2:  # noqa: PLR2004 -- one needs no name
        return
    left_out = len(drawn) - LEGEND
    more = [f"{left_out} more"] if left_out > 0 else []
    named = [*(label_of(label, SHORT) for label in labels[:LEGEND]), *more]
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": COLUMNS}
    axes.legend(drawn[: len(named)], named, **(below if len(drawn) > WITHIN else {}))


def check_plot(path: Path, *, force: bool) -> None:
    """Check before any work that this kind of plot can be made.

    Raises:
        FormError: if Matplotlib is not installed, or the suffix is not in KINDS.
        TargetError: if the file exists and not `force`, or cannot be replaced.
    """
    if path.suffix not in KINDS:
        raise FormError(f"{path}: the name of a plot must end in {', '.join(KINDS)}")
    require_libraries("a plot", "matplotlib")
    file_target(path, force=force)


def require_libraries(what: str, *names: str) -> None:
    """Refuse to draw `what` if one of these libraries is not installed.

    Raises:
        FormError: naming the command that installs it.
    """
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            title = name.capitalize()
            raise FormError(f"{what} needs {title}: {pip_install(name)}") from error


def write_plot(path: Path, panels: Sequence[Panel], *, force: bool = False) -> None:
    """Write panels, up to three in a row, as SVG, PNG or PDF, by the suffix of the name.

    Raises:
        FormError: if this kind of plot is not possible.
        TargetError: if the file cannot be written, or is there already and not `force`.
    """
    check_plot(path, force=force)
    output_file(path, plot_bytes(panels, path.suffix), force=force)


def plot_bytes(panels: Sequence[Panel], suffix: str) -> bytes:
    """Return panels, up to three in a row, as the bytes of a file of this kind."""
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
            axes = figure.add_subplot(grid[divmod(number, columns)])
            axes.set_title(label_of(panel.title))
            axes.set_xlabel(label_of(panel.x_label))
            axes.set_ylabel(label_of(panel.y_label))
            panel.draw(axes)
        file = io.BytesIO()
        figure.savefig(file, format=suffix[1:], metadata=NO_DATE[suffix])
    return file.getvalue()
