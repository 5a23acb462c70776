"""A page as HTML, for a notebook and for the viewer: no scripts, and models' text is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from ...data.sanitize import visible
from .page import Box, Grid, Page, PageSection, Remark
from .word_diff import Span

STYLE = (
    "<style>.lpfloop .answer{border:1px solid #8888;border-radius:4px;margin:4px 0;padding:4px 8px}"
    ".lpfloop .marked{border:3px solid #d90}.lpfloop h3{margin:0}"
    ".lpfloop .sides{display:flex;gap:16px}.lpfloop .sides>div{flex:1;min-width:0}"
    ".lpfloop .text,.lpfloop .said,.lpfloop .line{white-space:pre-wrap;overflow-wrap:anywhere}"
    ".lpfloop .said{opacity:.75}.lpfloop del,.lpfloop .bad{color:#b22}"
    ".lpfloop ins,.lpfloop .good{color:#171}</style>"
)
"""The look in a notebook; the viewer's own style sheet has rules for the same classes."""
TAGS = {"same": "span", "gone": "del", "new": "ins"}
LEVELS = {-1: "bad", 0: "fair", 1: "good", None: "unread"}


def page_html(page: Page) -> str:
    """Return a page as a piece of HTML with its style."""
    return f'<div class="lpfloop">{STYLE}<h3>{safe(page.title)}</h3>{sections_html(page)}</div>'


def sections_html(page: Page) -> str:
    """Return the sections of a page as HTML; an id is an anchor at the first box that shows it."""
    seen = set[str]()
    return "".join(_section(section, seen) for section in page.sections)


def safe(text: str) -> str:
    """Return text as safe HTML: markup escaped, hidden characters made visible."""
    return escape(visible(text))


def spans_html(spans: Sequence[Span]) -> str:
    """Return a text as HTML, with its changes marked."""
    return "".join(f"<{TAGS[s.kind]}>{safe(s.text)}</{TAGS[s.kind]}>" for s in spans)


def _section(section: PageSection, seen: set[str]) -> str:
    heading = f"<h2>{safe(section.heading)}</h2>" if section.heading else ""
    boxes = "".join(_box(box, seen) for box in section.boxes)
    grid = _grid(section.grid) if section.grid is not None and section.grid.rows else ""
    return heading + boxes + grid + _lines("line", section.lines)


def _grid(grid: Grid) -> str:
    rows = "".join(_row("td", row, grid.names) for row in grid.rows)
    head = _row("th", grid.columns, grid.names)
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _row(tag: str, cells: Iterable[str], names: int) -> str:
    of = ("", ' class="number"')
    rendered = (f"<{tag}{of[n >= names]}>{safe(cell)}</{tag}>" for n, cell in enumerate(cells))
    return f"<tr>{''.join(rendered)}</tr>"


def _box(box: Box, seen: set[str]) -> str:
    name = "answer marked" if box.marked else "answer"
    places = "".join(f'<span id="{safe(one)}"></span>' for one in box.ids if one not in seen)
    seen.update(box.ids)
    remarks = f"<div>{''.join(map(_remark, box.beside))}</div>" if box.beside else ""
    below = _lines("line", (f"→ {line}" for line in box.below))
    return (
        f'<article class="{name}" tabindex="-1" data-row>{places}<h3>{safe(box.title)}</h3>'
        f'<div class="sides"><div class="text">{spans_html(box.text)}</div>{remarks}</div>'
        f"{below}</article>"
    )


def _remark(remark: Remark) -> str:
    rated = "".join(
        f'<li><span class="rating {LEVELS[a.rating]}">'
        f"{'unread' if a.rating is None else a.rating}</span> {safe(a.name)}</li>"
        for a in remark.ratings
    )
    ratings = f'<ul class="ratings">{rated}</ul>' if rated else ""
    text = _lines("said", [remark.text] if remark.text else [])
    return f"{_lines('line', [remark.head])}{ratings}{text}"


def _lines(name: str, lines: Iterable[str]) -> str:
    return "".join(f'<div class="{name}">{safe(line)}</div>' for line in lines)
