"""A page about rows, independent of what draws it: a terminal or the viewer.

Text here is raw: the code that draws a page escapes it.
"""

from dataclasses import dataclass

from ....stores.records import AspectRating
from .word_diff import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A judgment of a text: a line, the ratings of a critique, and a longer text."""

    head: str
    ratings: tuple[AspectRating, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A text with its judgments next to it, and the rows made from it below.

    `ids` are the ids of the rows that it shows; `marked` if the requested id is one of them.
    """

    title: str
    text: tuple[Span, ...]
    remarks: tuple[Remark, ...] = ()
    below: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of short texts; the first `names` columns are text, the others numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """Boxes under a heading, then a table, then single lines."""

    heading: str
    boxes: tuple[Box, ...] = ()
    grid: Grid | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The page of one id."""

    title: str
    sections: tuple[PageSection, ...] = ()


def plain_text(text: str) -> tuple[Span, ...]:
    """Return a text as one unchanged span."""
    return (Span("same", text),)
