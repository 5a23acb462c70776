"""The difference of two texts, word by word."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

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
