r"""The boxes of a worked solution: `\boxed{...}`.

The last box is the answer, with the boxes that "and", "or" or a comma join to it; intermediate
boxes are not. A question with several answers may have each boxed at a different place: then all
boxes count (`every`). The same answer in two boxes is one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BOXED = "\\boxed{"
SPAN = 20_000
"""How many characters before the last box others are looked for."""
LONGEST = 400_000
"""How many characters of an unclosed box are its answer: no answer in earnest is as long."""
GAP = 80
"""The most characters between two boxes that are joined."""
BRACES = re.compile(r"\\boxed\{|[{}]")
COMMANDS = re.compile(r"\\(?:text|mbox|mathrm)\s?\{|\\[A-Za-z]+|\\[^A-Za-z]|[${}~\s]+")
JOINING = re.compile(
    r"(?:[^\W\d_]+\s|[^\W\d_]+(?:_?\d+)?\s?=\s?|for\spart\s\(.\)\s){0,3}?(?:[,;、]\s?)?"
    r"(?:and|or|und|oder|et|ou|y|o|и|или|和|或|与)\b\s?(?:[^\W\d_]+(?:_?\d+)?\s?=\s?)?",
    re.IGNORECASE,
)
DERIVING = re.compile(
    r"\b(?:so|thus|then|therefore|hence|gives?|get|is|means|total|finally|but|not|wait)\b|所以|因此"
)


@dataclass(frozen=True, slots=True)
class Boxed:
    """The last joined boxes of a text, and all of them; `end` is the end of the last one."""

    text: str
    every: str | None
    end: int


def boxed_answers(text: str) -> Boxed | None:
    """Return the boxed answers of a text, None without a box."""
    last = text.rfind(BOXED)
    if last < 0:
        return None
    spans = _spans(text, max(0, last - SPAN), last)
    joined = [spans[-1]]
    for span in reversed(spans[:-1]):
        if not _joins(text[span[1] + 1 : joined[0][0] - len(BOXED)]):
            break
        joined.insert(0, span)
    own, every = (_join_texts(text[start:end] for start, end in of) for of in (joined, spans))
    return Boxed(own, every if every != own else None, spans[-1][1])


def _spans(text: str, start: int, last: int) -> Sequence[tuple[int, int]]:
    """Return the spans of the boxes, the innermost of nested ones; the last may be open."""
    found = list[tuple[int, int]]()
    opened = list[int]()
    """Where each open brace's box begins; -1 for a brace that opens none."""
    begins = last + len(BOXED)
    for brace in BRACES.finditer(text, start, begins + LONGEST):
        if brace[0] == "}":
            begun = opened.pop() if opened else -1
            if begun >= 0 and not (found and found[-1][0] > begun):
                found.append((begun, brace.start()))
            if begun == begins:
                return found
        else:
            opened.append(brace.end() if brace[0] == BOXED else -1)
    return [*found, (begins, min(len(text), begins + LONGEST))]


def _joins(between: str) -> bool:
    if len(between) > GAP or "\n\n" in between:
        return False
    words = " ".join(COMMANDS.sub(" ", between).split())
    if DERIVING.search(words):
        return False
    return not words.strip(",;、&") or JOINING.fullmatch(f"{words} ") is not None


def _join_texts(texts: Iterable[str]) -> str:
    distinct = {"".join(text.split()): text.strip() for text in texts}
    return ", ".join(distinct.values())
