"""The difference of two texts, word by word."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from rich.text import Text

TOKEN = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
"""A word or a sign with the space after it, so that neighbours that change stay together."""
MANY = 4000
"""From this many words on, frequent words do not anchor the comparison, to keep it fast."""

STYLES = {"same": "", "gone": "red strike", "new": "green"}
AROUND = {"same": ("", ""), "gone": ("[-", "-]"), "new": ("{+", "+}")}
"""The marks around a stretch, also without colour."""
CONTEXT, MOST = 3, 16
"""The most words that a short diff shows of the context next to a change, and of a change."""


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


def marked_diff(old: str, new: str) -> Text:
    """Return in short how `new` differs, on one line: changes with a few words of context."""
    spans = word_diff(old, new)
    text = Text()
    for place, span in enumerate(spans):
        shown = _beside(span, first=not place, last=place == len(spans) - 1)
        before, after = AROUND[span.kind]
        space = " " if shown.endswith(" ") else ""
        text.append(f"{before}{shown.rstrip()}{after}{space}", STYLES[span.kind])
    return text


def _beside(span: Span, *, first: bool, last: bool) -> str:
    """Return a stretch without its middle, and without an end that is not next to a change."""
    words = TOKEN.findall(span.text)
    if span.kind != "same":
        return span.text if len(words) <= MOST else f"{''.join(words[:MOST])}… "
    if first and last:
        return span.text
    head, tail = (0 if first else CONTEXT), (0 if last else CONTEXT)
    if len(words) <= head + tail + 1:
        return span.text
    return f"{''.join(words[:head])}… {''.join(words[len(words) - tail :])}"
