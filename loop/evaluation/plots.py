# pyright: basic
"""Plots in one style, drawn by Matplotlib: for files, and for pages in light and dark.

The same numbers give the same bytes: no date, no random names in the SVG, no user style.
Matplotlib (the extra `plots`) is imported when a plot is drawn.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from ...stores.installation import pip_install
from ...stores.outputs import output_file
from ...stores.targets import file_target
from ..lake.query.forms import FormError
from .draw_panels import draw, height_of, label_of
from .panels import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".svg", ".png", ".pdf")
NO_DATE = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
PANEL = (5.0, 3.4)
"""Width and height of a panel, in inches."""
PANELS_IN_A_ROW = 3
STYLE: Any = {
    "axes.axisbelow": True,
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
    # Names of tasks and models may contain a dollar sign, and are not formulas.
    "text.parse_math": False,
}
INK = "#010203"
"""The colour of elements that get the colour of the page's text."""
ON_A_PAGE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
}
PAGE_PANEL = (4.6, 3.2)
"""Width and height of a panel on a page, in inches: readable on narrow pages, too."""
SVG = "http://www.w3.org/2000/svg"
HREF = "{http://www.w3.org/1999/xlink}href"


def check_plot(path: Path, *, force: bool) -> None:
    """Check before any work that this kind of plot can be made.

    Raises:
        FormError: if Matplotlib is not installed, or the suffix is not in KINDS.
        TargetError: if the file exists and not `force`, or cannot be replaced.
    """
    if path.suffix not in KINDS:
        raise FormError(f"{path}: the name of a plot must end in {', '.join(KINDS)}")
    require_matplotlib("a plot")
    file_target(path, force=force)


def require_matplotlib(what: str) -> None:
    """Refuse to draw `what` if Matplotlib is not installed.

    Raises:
        FormError: naming the extra that installs it.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise FormError(f"{what} needs Matplotlib: {pip_install('matplotlib')}") from error
    del mpl


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
        heights = [max(height_of(panel, PANEL[1]) for panel in row) for row in rows]
        figure = Figure(figsize=(PANEL[0] * columns, sum(heights)), layout="constrained")
        grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
        for number, panel in enumerate(panels):
            draw(figure.add_subplot(grid[divmod(number, columns)]), panel)
        return _saved(figure, suffix)


def page_svg(panel: Panel, name: str) -> str:
    """Return a panel as SVG for an HTML page, in the colour of its text.

    Its names begin with `name`, so that no two panels of a page share one.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**STYLE, **ON_A_PAGE})
        height = height_of(panel, PAGE_PANEL[1])
        figure = Figure(figsize=(PAGE_PANEL[0], height), layout="constrained")
        draw(figure.add_subplot(), panel)
        drawn = _saved(figure, ".svg")
    return _for_page(drawn, name, label_of(panel.title))


def svg_file(panels: Sequence[str]) -> bytes:
    """Return panels of a page, up to three in a row, as one SVG file: black on white."""
    width, height = (72 * inches for inches in PAGE_PANEL)
    columns = min(len(panels), PANELS_IN_A_ROW)
    whole, top = "", 0.0
    for start in range(0, len(panels), columns):
        row = [ET.fromstring(text) for text in panels[start : start + columns]]  # noqa: S314 -- ours
        sizes = [list(map(float, panel.attrib["viewBox"].split()[2:])) for panel in row]
        for column, (panel, size) in enumerate(zip(row, sizes, strict=True)):
            placed = zip(("x", "y", "width", "height"), (column * width, top, *size), strict=True)
            panel.attrib |= {name: f"{number:g}" for name, number in placed}
            whole += ET.tostring(panel, encoding="unicode")
        top += max((size[1] for size in sizes), default=height)
    size = f"{columns * width:g}", f"{top:g}"
    return (
        f'<svg xmlns="{SVG}" width="{size[0]}pt" height="{size[1]}pt" '
        f'viewBox="0 0 {size[0]} {size[1]}" color="black">'
        f'<rect width="100%" height="100%" fill="white"/>{whole}</svg>\n'
    ).encode()


def _saved(figure: "Figure", suffix: str) -> bytes:
    drawn = io.BytesIO()
    figure.savefig(drawn, format=suffix[1:], metadata=NO_DATE[suffix])
    return drawn.getvalue()


def _for_page(drawn: bytes, name: str, title: str) -> str:
    """Fit an SVG file into a page: its own names, no style of others, the page's colour."""
    root = ET.fromstring(drawn)  # noqa: S314 -- Matplotlib wrote it a moment ago
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in {f"{{{SVG}}}metadata", f"{{{SVG}}}style"}:
                parent.remove(child)
    for element in root.iter():
        named = {key: _page_value(key, value, name) for key, value in element.attrib.items()}
        element.attrib.clear()
        # HTML has no namespaces, and SVG no longer needs the namespace of links.
        element.attrib |= {key.replace(HREF, "href"): value for key, value in named.items()}
    for size in ("width", "height"):
        del root.attrib[size]
    width = float(root.attrib["viewBox"].split()[2])
    root.attrib |= {
        "role": "img",
        "aria-label": title,
        "fill": "currentColor",
        "style": f"stroke-linejoin:round;stroke-linecap:butt;max-width:{width * 4 / 3:.0f}px",
    }
    ET.register_namespace("", SVG)
    return ET.tostring(root, encoding="unicode")


def _page_value(attribute: str, value: str, name: str) -> str:
    if attribute == "id":
        return f"{name}-{value}"
    if attribute == HREF:
        return value.replace("#", f"#{name}-", 1)
    value = value.replace("url(#", f"url(#{name}-")
    return re.sub(rf"{INK}|#000000", "currentColor", value)
