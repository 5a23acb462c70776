# pyright: basic
"""How each kind of panel is drawn on Matplotlib's axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..data.sanitize import one_line
from .panels import Bars, Histogram, Intervals, Lines, Matrix, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LABEL, SHORT = 40, 28
"""The most characters of a label, and of a label next to its point."""
LEGEND = 10
"""The most parts in a panel's legend; of more, only the first are listed."""
WITHIN, COLUMNS = 4, 2
"""The most parts named within the panel; a larger legend is below it, in columns."""
ROW = 0.22
"""The height of an estimate's row in its panel, in inches."""
MARKED = 60
"""Lines of more points than these are drawn without a mark at each."""
MATRIX_LABELS = 6
"""The rows that the names below a matrix take."""
BAR = 0.8
"""The width of a group of bars, of the room between two."""


def label_of(text: str, limit: int = LABEL) -> str:
    """Return a text as a label: on one line, with nothing hidden, and not too long."""
    line = one_line(text, limit=len(text))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _short(text: str) -> str:
    return label_of(text, SHORT)


def height_of(panel: Panel, least: float) -> float:
    """Return a panel's height in inches: enough for its rows, and at least `least`."""
    rows = len(panel.estimates) if isinstance(panel, Intervals) else 0
    rows = len(panel.names) + MATRIX_LABELS if isinstance(panel, Matrix) else rows
    if isinstance(panel, Bars) and panel.lying:
        rows = len(panel.groups) * (1 if panel.stacked else max(1, 0.7 * len(panel.parts)))
    parts = len(panel.series) if isinstance(panel, Lines) else 0
    parts = len(panel.parts) if isinstance(panel, Bars | Histogram) else parts
    legend = ROW * -(-min(parts, LEGEND + 1) // COLUMNS) if parts > WITHIN else 0.0
    return max(least, 1.0 + ROW * rows) + legend


def draw(axes: "Axes", panel: Panel) -> None:
    """Draw a panel."""
    axes.set_title("\n".join(map(label_of, panel.title.split("\n"))))
    axes.set_xlabel(label_of(panel.x_label))
    match panel:
        case Lines():
            _draw_lines(axes, panel)
        case Intervals():
            _draw_intervals(axes, panel)
        case Bars():
            _draw_bars(axes, panel)
        case Histogram():
            _draw_histogram(axes, panel)
        case Matrix():
            _draw_matrix(axes, panel)


def _draw_lines(axes: "Axes", panel: Lines) -> None:
    axes.set_ylabel(label_of(panel.y_label))
    if panel.log_x:
        axes.set_xscale("log", base=2)
    if panel.whole_x:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _keep_whole(axes, panel)
    if panel.level is not None:
        axes.axhline(panel.level, color="#999999", linestyle="--", linewidth=0.8)
    if panel.diagonal:
        both = [value for series in panel.series for value in (*series.x, *series.y)]
        ends = (min(both, default=0.0), max(both, default=1.0))
        axes.plot(ends, ends, color="#999999", linestyle="--", linewidth=0.8)
    for place in panel.breaks:
        axes.axvline(place, color="#999999", linestyle=":", linewidth=0.8)
    drawn = [_draw_series(axes, series, number) for number, series in enumerate(panel.series)]
    _name_parts(axes, drawn, [series.label for series in panel.series])


def _keep_whole(axes: "Axes", panel: Lines) -> None:
    """Extend an axis of whole numbers by one to each side if it has only one value."""
    counts = {x for series in panel.series for x in series.x}
    if len(counts) == 1:
        (only,) = counts
        axes.set_xlim(only - 1, only + 1)


def _draw_series(axes: "Axes", series: Series, number: int) -> Any:
    """Draw a line or points with their errors, if known; return the legend's handle."""
    colour, line = _colour(number), "-" if series.style == "line" else ""
    drawn = axes.plot(
        series.x,
        series.y,
        color=colour,
        marker=MARKERS[number % len(MARKERS)] if len(series.x) <= MARKED else "",
        markersize=4,
        linestyle=line,
    )
    if len(series.low) and series.style == "line":
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.18, linewidth=0)
    elif len(series.low):
        axes.vlines(series.x, series.low, series.high, color=colour, linewidth=1)
    for x, y, name in zip(series.x, series.y, series.names, strict=False):
        axes.annotate(label_of(name), (x, y), (4, 4), textcoords="offset points", fontsize=7)
    return drawn[0]


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
    axes.set_yticks(rows, [_short(each.label) for each in panel.estimates])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _draw_bars(axes: "Axes", panel: Bars) -> None:
    places, count = range(len(panel.groups)), len(panel.parts)
    width = BAR if panel.stacked else BAR / max(1, count)
    bottoms = [0.0] * len(panel.groups)
    drawn = []
    for number, part in enumerate(panel.parts):
        shift = 0.0 if panel.stacked else width * (number - (count - 1) / 2)
        at = [place + shift for place in places]
        colour = _colour(number)
        if panel.lying:
            drawn.append(axes.barh(at, part.values, width, left=bottoms, color=colour))
        else:
            drawn.append(axes.bar(at, part.values, width, bottom=bottoms, color=colour))
        if panel.stacked:
            bottoms = [b + value for b, value in zip(bottoms, part.values, strict=True)]
    names = [_short(group) for group in panel.groups]
    if panel.lying:
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlabel(label_of(panel.y_label))
        axes.grid(visible=False, axis="y")
    else:
        axes.set_xticks(places, names)
        axes.set_ylabel(label_of(panel.y_label))
        axes.grid(visible=False, axis="x")
    _name_parts(axes, drawn, [part.label for part in panel.parts])


def _draw_histogram(axes: "Axes", panel: Histogram) -> None:
    axes.set_ylabel(label_of(panel.y_label))
    drawn: list[Any] = []
    for number, part in enumerate(panel.parts):
        colour = _colour(number)
        drawn.append(axes.stairs(part.values, panel.edges, fill=True, color=colour, alpha=0.25))
        axes.stairs(part.values, panel.edges, color=colour, linewidth=1.2)
    _name_parts(axes, drawn, [part.label for part in panel.parts])


def _draw_matrix(axes: "Axes", panel: Matrix) -> None:
    places = range(len(panel.names))
    missing = float("nan")
    values = [[missing if value is None else value for value in row] for row in panel.values]
    axes.pcolormesh(values, cmap="Greys", alpha=0.5, vmin=0.0, rasterized=False)
    middles = [place + 0.5 for place in places]
    names = [_short(name) for name in panel.names]
    axes.set_xticks(middles, names, rotation=90)
    axes.set_yticks(middles, names)
    axes.invert_yaxis()
    axes.grid(visible=False)
    for row, column in ((row, column) for row in places for column in places):
        value = panel.values[row][column]
        if value is not None:
            place = (column + 0.5, row + 0.5)
            axes.text(*place, f"{value:.0f}", ha="center", va="center", fontsize=7)


def _name_parts(axes: "Axes", drawn: Sequence[Any], labels: Sequence[str]) -> None:
    """Draw a legend if there is more than one part, below the panel if there are many."""
    if len(drawn) < 2:  # noqa: PLR2004 -- one needs no name
        return
    left_out = len(drawn) - LEGEND
    more = [f"{left_out} more"] if left_out > 0 else []
    named = [*map(_short, labels[:LEGEND]), *more]
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": COLUMNS}
    axes.legend(drawn[: len(named)], named, **(below if len(drawn) > WITHIN else {}))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
