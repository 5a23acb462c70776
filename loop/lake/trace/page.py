"""A page about rows, independent of what draws it: a terminal or the viewer.

Text here is raw: the code that draws a page escapes it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from ....stores.records import AspectRating

TOKEN = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
"""A word or a sign with the space after it, so that neighbours that change stay together."""
MANY = 4000
"""From this many words on, frequent words do not anchor the comparison, to keep it fast."""

STYLES = {"same": "", "gone": "red strike", "new": "green"}
AROUND = {"same": ("", ""), "gone": ("[-", "-]"), "new": ("{+", "+}")}
"""The marks around a stretch, also without colour."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text: in both texts, only in the old one, or only in the new."""

    kind: Literal["same", "gone", "new"]
    text: str


def word_diff(old: str, new: str) -> tuple[Span, ...]:
    """Return how `new` differs: `old` is all but its "new" spans, `new` all but its "gone" ones."""
    before, after = TOKEN.findall(old), TOKEN.findall(new)
    return tuple(span for span in _spans(before, after) if span.text)


def _spans(before: Sequence[str], after: Sequence[str]) -> Iterator[Span]:
    many = max(len(before), len(after)) > MANY
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=many).get_opcodes():
        if tag == "equal":
            yield Span("same", "".join(before[i:j]))
        else:
            yield Span("gone", "".join(before[i:j]))
            yield Span("new", "".join(after[k:m]))


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
