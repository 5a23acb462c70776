"""Reading the feedback model's reply: its last dictionary, or the reason why it has no rating.

What is read (Section 3.1: the ratings stand in the last sentence of the critique): the last `{` of
the reply must open a flat dictionary in Python's or JSON's notation, whose keys are exactly the
expected aspects, once each, and whose values are the integers -1, 0 or 1. A line break may stand
between its parts. Nothing but closing marks (`]`, backticks, `*`, `.`) may follow it on its line,
so that a dictionary quoted inside a sentence is no verdict; further lines of prose are allowed, a
further brace is not. Everything else is unscored with a reason: an unreadable verdict is never a
number.

The reader is a scanner that looks at each character a bounded number of times; nothing is
evaluated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from ..stores.records import SCORED, AspectRating, FinishReason, Rating

MAX_REPLY = 64 * 1024
"""Longer replies, in characters, are not read."""

RATINGS: dict[str, Rating] = {"-1": -1, "0": 0, "1": 1}
CLOSING_MARKS = "]`*. \t\r"
SPACE = " \t\r\n"
WORDS = frozenset({"true", "false", "null", "True", "False", "None"})
REFUSALS = (
    "i'm sorry",
    "i am sorry",
    "sorry,",
    "i apologize",
    "i can't",
    "i cannot",
    "i can not",
    "i'm unable",
    "i am unable",
    "i won't",
    "i will not",
    "as an ai",
)


class Status(StrEnum):
    """Why a candidate has ratings (`scored`), or has none."""

    SCORED = SCORED
    """Every expected rating was read."""
    EMPTY = "empty"
    """The reply holds nothing but white space."""
    OVERLONG = "overlong"
    """The prompt of the critique did not fit into the critic's context, so nothing was asked."""
    TRUNCATED = "truncated"
    """The reply ended at the token limit; a dictionary in it may not have been the last."""
    TOO_LONG = "too_long"
    """The reply is longer than `MAX_REPLY`."""
    REFUSAL = "refusal"
    """The reply has no dictionary and opens as refusals do."""
    NO_DICTIONARY = "no_dictionary"
    """The reply has no dictionary."""
    MALFORMED = "malformed"
    """The last dictionary is broken, nested, or followed by another brace."""
    QUOTED = "quoted"
    """The last dictionary stands inside a sentence: text follows it on its line."""
    DUPLICATE_KEYS = "duplicate_keys"
    """An aspect is rated twice."""
    WRONG_KEYS = "wrong_keys"
    """The keys are not the aspects that were asked for."""
    NOT_INTEGER = "not_integer"
    """A rating is a text, a fraction, a truth value or null, or is written with a plus sign."""
    OUT_OF_RANGE = "out_of_range"
    """A rating is an integer other than -1, 0 and 1."""
    NO_CHECK = "no_check"
    """The verifier has nothing to verify for this prompt."""
    UNREADABLE = "unreadable"
    """The verifier finds no final answer in the reference."""
    TIMEOUT = "timeout"
    """The verifier's comparison took too long."""
    FAILED = "failed"
    """The judge broke down on this one: an engine gave it up, a comparison lacked memory."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Which ratings a reply must hold: those of exactly `count` distinct aspects among `names`."""

    names: tuple[str, ...]
    count: int

    @classmethod
    def all_of(cls, *names: str) -> Self:
        """Expect each of `names`: a task with fixed aspects (Table 9)."""
        return cls(names, len(names))

    @property
    def fixed(self) -> bool:
        """Whether it is known before the reply which aspects it must rate."""
        return self.count == len(self.names)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says: its status, and the ratings in the reply's order.

    Without ratings, the aspects of a task with fixed aspects are listed with a rating of None.
    """

    status: str
    aspects: tuple[AspectRating, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class _Found:
    """The last dictionary of a reply: where it starts, and its entries as written."""

    start: int
    entries: tuple[_Entry, ...]


class _BrokenError(ValueError):
    """The text at hand is no flat dictionary."""


def read_reply(text: str, finish_reason: FinishReason, expected: Expected) -> Reading:
    """Read the ratings of a reply, or the reason why there are none."""
    status = unread(text, finish_reason)
    if status is not None:
        return unscored(status, expected)
    found = _last_dictionary(text)
    if isinstance(found, Status):
        return unscored(found, expected)
    status = _fault(found.entries, expected)
    if status is not None:
        return unscored(status, expected)
    names = tuple(entry.key for entry in found.entries)
    comments = _comments(text[: found.start], names)
    rated = tuple(
        AspectRating(name=entry.key, rating=RATINGS[entry.value], comment=comment)
        for entry, comment in zip(found.entries, comments, strict=True)
    )
    return Reading(Status.SCORED.value, rated)


def unscored(status: Status, expected: Expected) -> Reading:
    """Return a reading without ratings."""
    names = expected.names if expected.fixed else ()
    return Reading(
        status.value, tuple(AspectRating(name=name, rating=None, comment="") for name in names)
    )


def unread(text: str, finish_reason: FinishReason) -> Status | None:
    """Return the reason not to look for ratings in a reply at all, if there is one."""
    if finish_reason == "overlong":
        return Status.OVERLONG
    if finish_reason == "failed":
        return Status.FAILED
    if finish_reason == "length":
        return Status.TRUNCATED
    if len(text) > MAX_REPLY:
        return Status.TOO_LONG
    return Status.EMPTY if not text.strip() else None


def _last_dictionary(text: str) -> _Found | Status:
    start = text.rfind("{")
    if start < 0 or text[start + 1 :].lstrip(SPACE)[:1] not in ("'", '"'):
        return Status.REFUSAL if refuses(text) else Status.NO_DICTIONARY
    try:
        entries, end = _entries(text, start + 1)
    except _BrokenError:
        return Status.MALFORMED
    rest = text[end:]
    if "}" in rest:
        return Status.MALFORMED
    if rest.partition("\n")[0].strip(CLOSING_MARKS):
        return Status.QUOTED
    return _Found(start, entries)


def refuses(text: str) -> bool:
    """Whether a reply opens as refusals do."""
    return text.lstrip().lower().replace("\u2019", "'").startswith(REFUSALS)


def _entries(text: str, at: int) -> tuple[tuple[_Entry, ...], int]:
    """Read `"key": value, ...}` from `at`; return the entries and where the dictionary ends."""
    entries: list[_Entry] = []
    while True:
        at = _skip_space(text, at)
        if entries and text[at : at + 1] == "}":
            return tuple(entries), at + 1
        key, at = _string(text, at)
        at = _skip_space(text, at)
        if text[at : at + 1] != ":":
            raise _BrokenError
        value, at = _value(text, _skip_space(text, at + 1))
        entries.append(_Entry(key, value))
        at = _skip_space(text, at)
        mark = text[at : at + 1]
        if mark == "}":
            return tuple(entries), at + 1
        if mark != ",":
            raise _BrokenError
        at += 1


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def _string(text: str, at: int) -> tuple[str, int]:
    """Return the raw text between the quotes at `at`, escapes left as written, and where it ends.

    No aspect's name holds a backslash, so a key with an escape is never an expected one.
    """
    quote = text[at : at + 1]
    if quote not in ("'", '"'):
        raise _BrokenError
    end = at + 1
    while end < len(text) and text[end] != quote:
        if text[end] == "\n":
            raise _BrokenError
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise _BrokenError
    return text[at + 1 : end], end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """Return a value as written (a text keeps its quotes) and where it ends."""
    if text[at : at + 1] in ("'", '"'):
        _, end = _string(text, at)
        return text[at:end], end
    end = at
    while end < len(text) and (
        text[end] in "+-._" or (text[end].isascii() and text[end].isalnum())
    ):
        end += 1
    value = text[at:end]
    if not (value in WORDS or value.lstrip("+-")[:1].isdigit()):
        raise _BrokenError
    return value, end


def _fault(entries: tuple[_Entry, ...], expected: Expected) -> Status | None:
    """Return what is wrong with the entries as an answer to what was asked, if anything."""
    keys = [entry.key for entry in entries]
    if len(set(keys)) < len(keys):
        return Status.DUPLICATE_KEYS
    if len(keys) != expected.count or not set(keys) <= set(expected.names):
        return Status.WRONG_KEYS
    if not all(_is_integer(entry.value) for entry in entries):
        return Status.NOT_INTEGER
    if not all(entry.value in RATINGS for entry in entries):
        return Status.OUT_OF_RANGE
    return None


def _is_integer(value: str) -> bool:
    digits = value.removeprefix("-")
    return digits.isdigit() and (digits == "0" or digits[0] != "0") and value != "-0"


def _comments(body: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the critique says of each aspect, before its score; empty where unmarked.

    The last heading of a name counts: Task 1 names the skills first, Task 2 judges them.
    """
    heads = {name: body.rfind(f"{name}:") for name in names}
    if len(names) == 1 and heads[names[0]] < 0:
        return (_trimmed(_after_task(body)),)
    starts = sorted(head for head in heads.values() if head >= 0)
    return tuple(_comment(body, name, head, starts) for name, head in heads.items())


def _comment(body: str, name: str, head: int, starts: list[int]) -> str:
    if head < 0:
        return ""
    end = next((start for start in starts if start > head), len(body))
    return _trimmed(body[head + len(name) + 1 : end])


def _after_task(body: str) -> str:
    return body.rpartition("Task 2:")[2]


def _trimmed(passage: str) -> str:
    """Cut a passage before its score, and the list marks and white space around it."""
    ends = [at for at in _score_marks(passage) if at >= 0]
    return passage[: min(ends, default=len(passage))].strip(" \t\r\n*-#>[`")


def _score_marks(passage: str) -> Iterator[int]:
    for mark in ("Score:", "score:", "**Score"):
        yield passage.find(mark)
