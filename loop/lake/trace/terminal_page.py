"""A page on a terminal: control characters escaped, changes marked even without colour.

Long texts are left to the terminal to wrap: they can be copied, and cost next to nothing. Texts,
and only texts, are indented, so no text can pass for a heading or a reason.
"""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ...data.text import one_line, print_wrapped, visible
from ..query.row_table import print_texts
from .page import AROUND, STYLES, Box, Page, Remark, Span

TITLE = 200
MARK = "▶ "
TEXT, SAID = "  ", "  │ "
BARS = {-1: "▁", 0: "▅", 1: "█", None: "?"}


def print_page(page: Page, console: Console | None = None) -> None:
    """Print a page."""
    console = console or Console()
    console.print(Text(one_line(page.title, limit=TITLE), style="bold"))
    for section in page.sections:
        if section.heading:
            console.print(Text(f"\n{one_line(section.heading, limit=TITLE)}", style="bold"))
        for box in section.boxes:
            for drawn in _box(box, console.width):
                console.print(drawn, soft_wrap=True)
        grid = section.grid
        if grid is not None and grid.rows:
            rows = [[one_line(cell, limit=TITLE) for cell in row] for row in grid.rows]
            print_texts(console, grid.columns, rows, left=grid.names)
        for line in section.lines:
            print_wrapped(console, visible(line))


def page_text(page: Page, width: int = 100) -> str:
    """Return a page as plain text."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        print_page(page, console)
    return captured.get()


def _box(box: Box, width: int) -> Iterator[Text]:
    title = (MARK if box.marked else "") + one_line(box.title, limit=TITLE)
    line = ("━" if box.marked else "─") * max(3, width - cell_len(title) - 1)
    yield Text(f"{title} {line}", style="bold yellow" if box.marked else "bold")
    lines = [line for remark in box.remarks for line in _remark(remark)]
    yield _spans(box.text)
    yield from (Text(_indent(line, SAID), style="dim") for line in lines)
    yield from (Text(f"→ {visible(line)}") for line in box.below)


def _remark(remark: Remark) -> list[str]:
    """Return a judgment's ratings on one line, and its text on the next."""
    rated = ", ".join(
        f"{BARS[a.rating]} {a.name} {'unread' if a.rating is None else a.rating}"
        for a in remark.ratings
    )
    return [f"{remark.head}: {rated}" if rated else remark.head, *filter(None, [remark.text])]


def _spans(spans: Sequence[Span]) -> Text:
    text = Text(TEXT)
    for span in spans:
        before, after = AROUND[span.kind]
        text.append(f"{before}{_indent(span.text, TEXT)[len(TEXT) :]}{after}", STYLES[span.kind])
    return text


def _indent(text: str, indent: str) -> str:
    return indent + visible(text).replace("\n", f"\n{indent}")
