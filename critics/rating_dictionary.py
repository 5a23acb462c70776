"""Reading a judge's ratings: the last dictionary of its reply, or the reason why there is none.

What is read (RLRF, Section 3.1: the ratings stand in the last sentence of the critique): the last
`{` of the reply must open a flat dictionary in Python's or JSON's notation, whose keys are exactly
the expected aspects, once each, and whose values are the integers -1, 0 or 1. A line break may
stand between its parts. Nothing but closing marks (`]`, backticks, `*`, `.`) may follow it on its
line, so that a dictionary quoted inside a sentence is no verdict; further lines of prose are
allowed, a further brace is not.

No pattern here ever goes back over what it has matched, so that reading takes linear time; nothing
is evaluated.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ..stores.records import SCORED, AspectRating, Rating
from .judge import Expected, Reading, Status, UnreadError, absent

AspectRatings = tuple[AspectRating, ...]
RATINGS: dict[str, Rating] = {"-1": -1, "0": 0, "1": 1}
CLOSING_MARKS = "]`*. \t\r"
SCORE_MARK = re.compile(r"Score:|score:|\*\*Score")

SPACE = r"[ \t\r\n]*+"
TEXT = r""""(?:[^"\\\n]|\\[\s\S])*+"|'(?:[^'\\\n]|\\[\s\S])*+'"""
WORD = r"[+-]*+[0-9][\w.+-]*+|(?:true|false|null|True|False|None)(?![\w.+-])"
ENTRY = rf"{SPACE}({TEXT}){SPACE}:{SPACE}({TEXT}|{WORD}){SPACE}"
_ENTRY = re.compile(ENTRY, re.ASCII)
_OPENING = re.compile(rf"\{{{SPACE}[\"']")
_DICTIONARY = re.compile(rf"\{{{ENTRY}(?:,{ENTRY})*+(?:,{SPACE})?\}}", re.ASCII)
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class RatedAspects(Expected[AspectRatings]):
    """Which ratings a reply must hold: those of exactly `count` distinct aspects among `names`."""

    names: tuple[str, ...]
    count: int

    @classmethod
    def all_of(cls, *names: str) -> Self:
        """Expect each of `names`: a task with fixed aspects (Table 9)."""
        return cls(names, len(names))

    @property
    def nothing(self) -> tuple[AspectRatings]:
        """No rating of the aspects, as far as it is known before the reply which it must rate."""
        names = self.names if self.count == len(self.names) else ()
        return (tuple(AspectRating(name=name, rating=None, comment="") for name in names),)

    def read(self, text: str, *, cut: bool) -> list[Reading[AspectRatings]]:  # noqa: ARG002 (never cut)
        """Read the ratings, in the reply's order.

        Raises:
            UnreadError: if there are none.
        """
        body, entries = _last_dictionary(text)
        names = tuple(key[1:-1] for key, _ in entries)
        if fault := self._fault(names, [value for _, value in entries]):
            raise UnreadError(fault)
        rated = (
            AspectRating(name=name, rating=RATINGS[value], comment=comment)
            for name, (_, value), comment in zip(
                names, entries, _comments(body, names), strict=True
            )
        )
        return [Reading(SCORED, tuple(rated))]

    def _fault(self, names: Sequence[str], values: Sequence[str]) -> Status | None:
        """Return what is wrong with the entries as an answer to what was asked, if anything."""
        if len(set(names)) < len(names):
            return Status.DUPLICATE_KEYS
        if len(names) != self.count or not set(names) <= set(self.names):
            return Status.WRONG_KEYS
        if not all(map(_INTEGER.fullmatch, values)):
            return Status.NOT_INTEGER
        return None if set(values) <= RATINGS.keys() else Status.OUT_OF_RANGE


def _last_dictionary(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return what stands before the last dictionary, and its entries as they are written.

    A key keeps its escapes: no aspect's name holds a backslash, so it is none that is expected.
    """
    start = text.rfind("{")
    if start < 0 or not _OPENING.match(text, start):
        raise UnreadError(absent(text, Status.NO_DICTIONARY))
    found = _DICTIONARY.match(text, start)
    if found is None or "}" in text[found.end() :]:
        raise UnreadError(Status.MALFORMED)
    if text[found.end() :].partition("\n")[0].strip(CLOSING_MARKS):
        raise UnreadError(Status.QUOTED)
    return text[:start], _ENTRY.findall(text, start + 1, found.end())


def _comments(body: str, names: Sequence[str]) -> list[str]:
    """Return what the critique says of each aspect, before its score; empty where unmarked.

    The last heading of a name counts: Task 1 names the skills first, Task 2 judges them.
    """
    heads = [body.rfind(f"{name}:") for name in names]
    if heads == [-1]:
        return [_trimmed(body.rpartition("Task 2:")[2])]
    ends = [min((end for end in heads if end > head), default=len(body)) for head in heads]
    return [
        _trimmed(body[head + len(name) + 1 : end]) if head >= 0 else ""
        for name, head, end in zip(names, heads, ends, strict=True)
    ]


def _trimmed(passage: str) -> str:
    """Cut a passage before its score, and the list marks and white space around it."""
    return SCORE_MARK.split(passage, maxsplit=1)[0].strip(" \t\r\n*-#>[`")
