"""Reading a judge's ratings: the last dictionary of its reply, or the reason why it is unread.

The rule (RLRF, Section 3.1: the ratings are in the last sentence of the critique): the last `{` of
the reply must open a flat dictionary in Python's or JSON's notation, whose keys are exactly the
expected aspects, once each, and whose values are the integers -1, 0 or 1. Line breaks between its
parts are allowed. On its line, only whole sentences, marks or a label may come before it, and only
closing marks (`]`, backticks, `*`, `.`) after it; further lines of prose are allowed, a further
brace is not. It does not count if another dictionary of the reply, or a declaration of the judge in
words, contradicts it, if the words around it attribute it to somebody else (`quoting`), or if a
judged text has the same ratings.

The patterns never backtrack over matched text, so that reading takes linear time; nothing is
evaluated.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..stores.records import SCORED, AspectRating, Rating
from .judge import ExampleReply, Expected, JudgeReply, Reading, absent, reasons
from .quoting import begins_line, foreign, holds, plain, require_undisputed
from .reply_schema import ReplySchema, comment, draw_value, object_of, one_of
from .status import Status, UnreadError

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
    """The expected reply: ratings of exactly `count` distinct aspects among `names`."""

    names: tuple[str, ...]
    count: int

    place: ClassVar[str] = (
        "Write first the comments that are asked for, and reason as you like. Then write the "
        "line {mark} by itself, and below it the dictionary, and nothing else."
    )

    @classmethod
    def all_of(cls, *names: str) -> Self:
        """Expect each of `names`: a task with fixed aspects (Table 9)."""
        return cls(names, len(names))

    @property
    def schema(self) -> ReplySchema:
        """The schema of a comment and a rating for each aspect, or for the chosen ones."""
        aspect = object_of({"comment": comment(self.count), "rating": one_of([-1, 0, 1])})
        return object_of(dict.fromkeys(self.names, aspect), self.count)

    @property
    def nothing(self) -> tuple[AspectRatings]:
        """Readings without ratings, for the aspects that are certain before the reply."""
        names = self.names if self.count == len(self.names) else ()
        return (tuple(AspectRating(name=name, rating=None, comment="") for name in names),)

    def read(self, reply: JudgeReply) -> list[Reading[AspectRatings]]:
        """Read the ratings, in the reply's order.

        Raises:
            UnreadError: if they are missing.
        """
        text = reply.text
        start, end = _last_dictionary(text)
        entries = _entries(text, start, end)
        names = tuple(key[1:-1] for key, _ in entries)
        values = [value for _, value in entries]
        if fault := self._fault(names, values):
            raise UnreadError(fault)
        if _is_contradicted(text, dict(entries)):
            raise UnreadError(Status.CONTRADICTORY)
        if fault := foreign(text, start, end):
            raise UnreadError(fault)
        require_undisputed(text, {float(value) for value in values})
        comments = _comments(f"{reply.before}\n{text[:start]}", names)
        rated = zip(names, values, comments, strict=True)
        document = {name: {"rating": RATINGS[v], "comment": said} for name, v, said in rated}
        return self.read_object(document, reply.judged)

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[AspectRatings]]:
        """Read the ratings, in the order of the object's fields.

        Raises:
            UnreadError: if a judged text holds them, too.
        """
        if holds(judged, [f"{name}: {one['rating']}" for name, one in document.items()]):
            raise UnreadError(Status.ECHO)
        rated = (
            AspectRating(name=name, rating=one["rating"], comment=one["comment"].strip())
            for name, one in document.items()
        )
        return [Reading(SCORED, tuple(rated))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a comment on each aspect, and ratings that are often all good or all bad."""
        chosen = draw.sample(self.names, self.count)
        names = [name for name in self.names if name in chosen]
        ratings = _example_ratings(names, draw)
        given = zip(names, reasons(reason, len(names)), strict=True)
        lines = "\n".join(f"{name}: {why}" for name, why in given)
        return ExampleReply(lines, json.dumps(ratings))

    def example_object(self, schema: ReplySchema, draw: random.Random, reason: str) -> Any:
        """Return an object with ratings as those of `example`."""
        found = draw_value(schema, draw, reason)
        for name, rating in _example_ratings([n for n in found if n in self.names], draw).items():
            found[name]["rating"] = rating
        return found

    def _fault(self, names: Sequence[str], values: Sequence[str]) -> Status | None:
        """Return the status of entries that do not fit the question; None if they do."""
        if len(set(names)) < len(names):
            return Status.DUPLICATE_KEYS
        if len(names) != self.count or not set(names) <= set(self.names):
            return Status.WRONG_KEYS
        if not all(map(_INTEGER.fullmatch, values)):
            return Status.NOT_INTEGER
        return None if set(values) <= RATINGS.keys() else Status.OUT_OF_RANGE


def _example_ratings(names: Sequence[str], draw: random.Random) -> dict[str, int]:
    """Return ratings that are often all good or all bad, so that pairs can be made of them."""
    all_alike = draw.choices((1, -1, None), weights=(4, 3, 1))[0]
    return {n: draw.choice((-1, 0, 1)) if all_alike is None else all_alike for n in names}


def _last_dictionary(text: str) -> tuple[int, int]:
    """Return the start and the end of the last dictionary."""
    start = text.rfind("{")
    if start < 0 or not _OPENING.match(text, start):
        raise UnreadError(absent(text, Status.NO_DICTIONARY))
    found = _DICTIONARY.match(text, start)
    if found is None or "}" in text[found.end() :]:
        raise UnreadError(Status.MALFORMED)
    behind = text[found.end() :].partition("\n")[0]
    if behind.strip(CLOSING_MARKS) or not begins_line(text, start):
        raise UnreadError(Status.QUOTED)
    return start, found.end()


def _entries(text: str, start: int, end: int) -> list[tuple[str, str]]:
    """Return the entries of a dictionary as they are written.

    A key keeps its escapes: names of aspects never contain a backslash, so it is unexpected.
    """
    return _ENTRY.findall(text, start + 1, end)


def _is_contradicted(text: str, entries: Mapping[str, str]) -> bool:
    """Whether another dictionary of the reply has another value for one of the keys."""
    ratings = {plain(key): value for key, value in entries.items()}
    return any(
        plain(value) != ratings.get(plain(key), plain(value))
        for found in _DICTIONARY.finditer(text)
        for key, value in _entries(text, found.start(), found.end())
    )


def _comments(body: str, names: Sequence[str]) -> list[str]:
    """Return the critique's comment on each aspect, before its score; empty if unmarked.

    The last heading of a name counts: Task 1 names the skills first, Task 2 judges them.
    """
    heads = [body.rfind(f"{name}:") for name in names]
    if heads == [-1]:
        return [_trim(body.rpartition("Task 2:")[2])]
    ends = [min((end for end in heads if end > head), default=len(body)) for head in heads]
    return [
        _trim(body[head + len(name) + 1 : end]) if head >= 0 else ""
        for name, head, end in zip(names, heads, ends, strict=True)
    ]


def _trim(passage: str) -> str:
    """Cut a passage before its score, and the list marks and white space around it."""
    return SCORE_MARK.split(passage, maxsplit=1)[0].strip(" \t\r\n*-#>[`")
