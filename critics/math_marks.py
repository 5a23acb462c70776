r"""The marks of a final answer: boxes, and words that announce it (`####`, "the answer is", 答案).

A mark with a verb announces the text after it. A label ("Answer:", "A:") may also be the heading of
a whole solution.

Of boxes, `\boxed{...}`, the last is the answer, with the boxes that "and", "or" or a comma join to
it; intermediate boxes are not. A question with several answers may have each boxed at a different
place: then all boxes count (`every`). The same answer in two boxes is one.
"""

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .math_text import QUANTITY

ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
MARKED_WITHIN = 100_000
"""Characters before a text's end that are searched for a mark."""
NEAR = 300
"""Characters before a text's end that usually contain it."""
LONGEST = 12
MOST = 16
"""How many marks are looked at, from the last one on."""

# Each alternative begins with a letter, so that the search skips all places without one.
WORDS = re.compile(
    r"####|answers?|antwort|r[ée]ponse|respuesta|risposta|resposta|ответ|答えは|答案|答|故选|应选|정답은|\na:"
)
VERB = re.compile(
    r"(?:\sfinale?|\scorrecta?|\s(?:to|for|of)\s[^.:\n]{1,80}?)?[*_]{0,2}"
    r"(?:\s?(?:is|was|are|were|(?:will|would|should|must|could|might|may|has\sto|can\sonly"
    r"|turns\sout\sto)\sbe|equals|comes\s(?:out\s)?to|ist|lautet|est|es|è|é"
    r"|是|为|為|应为|等于)(?![a-z])(?P<verb>\s?:?)|\s?[:=]|\s[\u2013\u2014-]\s|\u2014)"
)
ALONE = ("####", "故选", "应选", "答えは", "정답은")
LETTER = "\na:"
DENIED = "\ue000"
"""The sign for a denied number (`math_denials`)."""
CORRECTION = re.compile(
    rf"(?:{DENIED}\)?|\b(?:wait|actually|sorry|oops|correction|no(?:pe)?(?=\s?[,.:!;\u2014])|hm+"
    r"|scratch\sthat|or\srather|i\smeant?|make\sthat|but(?=\s(?:it|that)\b)))[\s,.:;!?\u2026\u2014-]{1,4}"
    r"(?:(?:but|rather|instead|so|no|wait|actually)[\s,]{1,2}){0,2}"
    r"(?:(?:it|that|this)(?:['\u2019]s|\s(?:is|was|(?:should|must|would|will)\sbe))\s(?:actually\s)?"
    r"|i\smeant?\s|make\sthat\s|而?是\s?|the\s(?:right|correct|actual)\s[a-z]{1,20}\sis\s)?"
    rf"(?P<what>{QUANTITY})(?:\s[^\W\d_]{{1,20}})?\s?(?=[.!;,)\n]|$)"
)
"""A number that corrects an earlier one: "Wait, it is 4.", "..., no, 4"."""
BOXED = "\\boxed{"
SPAN = 20_000
"""How many characters before the last box others are looked for."""
LONGEST_BOX = 400_000
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
class Mark:
    """A mark in a text: its end, and whether it may be a mere heading."""

    end: int
    label: bool


def lower(text: str) -> str:
    """Return a text of the same length in small letters; `str.lower` makes some texts longer."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(ASCII_LOWER)


def marks(text: str, *, after: int) -> Iterator[Mark]:
    """Yield the marks of a text behind a place, the last first."""
    first = max(after, len(text) - MARKED_WITHIN, 0)
    near = max(first, len(text) - NEAR)
    end = len(text)
    for start, stop in ((near, end), (first, near)):
        part = lower(text[start : min(end, stop + LONGEST + 100)])
        found = [m for m in WORDS.finditer(part) if start + m.start() < stop][-MOST:]
        for word in reversed(found):
            mark = _mark(part, word)
            if mark is not None:
                yield Mark(start + mark.end, mark.label)


def correction(text: str, *, after: int) -> re.Match[str] | None:
    """Return the last number behind a place that corrects the answer stated there."""
    start = max(after, len(text) - MARKED_WITHIN)
    return max(CORRECTION.finditer(lower(text), start), key=lambda m: m.start(), default=None)


def _mark(text: str, word: re.Match[str]) -> Mark | None:
    if word[0] in ALONE:
        return Mark(word.end(), label=False)
    if word[0] == LETTER:
        return Mark(word.end(), label=True)
    tail = VERB.match(text, word.end())
    return None if tail is None else Mark(tail.end(), label=tail["verb"] is None)


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
    for brace in BRACES.finditer(text, start, begins + LONGEST_BOX):
        if brace[0] == "}":
            begun = opened.pop() if opened else -1
            if begun >= 0 and not (found and found[-1][0] > begun):
                found.append((begun, brace.start()))
            if begun == begins:
                return found
        else:
            opened.append(brace.end() if brace[0] == BOXED else -1)
    return [*found, (begins, min(len(text), begins + LONGEST_BOX))]


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
