"""A page as HTML for a notebook: no scripts, and models' text is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from ...data.sanitize import visible
from .page import Box, Grid, Page, PageSection
from .word_diff import Span

STYLE = (
    "<style>.lpfloop .box{border:1px solid #8888;border-radius:4px;margin:4px 0;padding:4px 8px}"
    ".lpfloop .marked{border:3px solid #d90}"
    ".lpfloop .title{font-weight:bold}"
    ".lpfloop .sides{display:flex;gap:16px}.lpfloop .sides>div{flex:1;min-width:0}"
    ".lpfloop .text,.lpfloop .said,.lpfloop .line{white-space:pre-wrap;overflow-wrap:anywhere}"
    ".lpfloop .said{opacity:.75}.lpfloop del{color:#b22}.lpfloop ins{color:#171}</style>"
)
TAGS = {"same": "span", "gone": "del", "new": "ins"}


def page_html(page: Page) -> str:
    """Return a page as a piece of HTML."""
    sections = "".join(_section(section) for section in page.sections)
    return f'<div class="lpfloop">{STYLE}<h3>{safe(page.title)}</h3>{sections}</div>'


def safe(text: str) -> str:
    """Return text as safe HTML: markup escaped, hidden characters made visible."""
    return escape(visible(text))


def _section(section: PageSection) -> str:
    heading = f"<h4>{safe(section.heading)}</h4>" if section.heading else ""
    boxes = "".join(_box(box) for box in section.boxes)
    grid = _grid(section.grid) if section.grid is not None and section.grid.rows else ""
    return heading + boxes + grid + _lines("line", section.lines)


def _grid(grid: Grid) -> str:
    rows = "".join(_row("td", row) for row in grid.rows)
    return f"<table>{_row('th', grid.columns)}{rows}</table>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{safe(cell)}</{tag}>' for cell in cells)}</tr>"


def _box(box: Box) -> str:
    name = "box marked" if box.marked else "box"
    sides = f'<div class="text">{_spans(box.text)}</div>'
    if box.beside:
        sides += f"<div>{_lines('said', box.beside)}</div>"
    return (
        f'<div class="{name}"><div class="title">{safe(box.title)}</div>'
        f'<div class="sides">{sides}</div>{_lines("line", (f"→ {b}" for b in box.below))}</div>'
    )


def _lines(name: str, lines: Iterable[str]) -> str:
    return "".join(f'<div class="{name}">{safe(line)}</div>' for line in lines)


def _spans(spans: Sequence[Span]) -> str:
    return "".join(f"<{TAGS[s.kind]}>{safe(s.text)}</{TAGS[s.kind]}>" for s in spans)
