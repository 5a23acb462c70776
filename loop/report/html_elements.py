"""HTML that is safe against injection: every text and every attribute is escaped on insertion."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from ..data.sanitize import visible

VOID = frozenset({"meta", "br", "hr"})


@dataclass(frozen=True, slots=True)
class Html:
    """A piece of a page that is markup already."""

    markup: str


Content = str | Html
"""The content of an element; a text is escaped."""


def element(tag: str, *content: Content, **attributes: str) -> Html:
    """Return an element; attributes named like words of Python have a `_` behind."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for name, value in attributes.items()
    )
    if tag in VOID:
        return Html(f"<{tag}{named}>")
    return Html(f"<{tag}{named}>{joined(content).markup}</{tag}>")


def joined(pieces: Iterable[Content]) -> Html:
    """Return pieces one behind the other."""
    return Html("".join(p.markup if isinstance(p, Html) else _text(p) for p in pieces))


def table(head: Iterable[Content], rows: Iterable[Iterable[Content]]) -> Html:
    """Return a table, which scrolls sideways if it is too wide."""
    header = element("thead", _row("th", head))
    body = element("tbody", *(_row("td", row) for row in rows))
    return element("div", element("table", header, body), class_="wide")


def prose(text: str) -> Html:
    """Return a text with the parts between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return joined([text])
    return joined(element("code", part) if n % 2 else part for n, part in enumerate(parts))


def listed(items: Iterable[Content]) -> Html:
    """Return a list; empty without items."""
    found = [element("li", item) for item in items]
    return element("ul", *found) if found else Html("")


def _row(tag: str, cells: Iterable[Content]) -> Html:
    return element("tr", *(element(tag, cell) for cell in cells))


def _text(text: str) -> str:
    return escape(visible(text))
