"""The statements of an annotator's reply, in the form that was asked for.

Statements stand on lines of their own; prose between them is allowed, and what a sentence quotes is
no statement. Nothing is evaluated.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from ...stores.records import SCORED, Preferred
from .annotator_pool import MOST_PAIRS
from .comparison import Expected

MOST_DIGITS = 4

LINE = re.compile(r"[\s>*#-]*(?:pair\s*)?(\d{1,4})[*\s]*[:.)][*\s]*(.*)", re.IGNORECASE)
CHOICE = re.compile(r"(?:(?:output|answer|response)\s*)?\(?([\w-]+)\)?", re.IGNORECASE)
RANKED = re.compile(r"(?:output\s*)?(\d{1,4})\s*([,>=])\s*(?:output\s*)?(\d{1,4})", re.IGNORECASE)
PAIR_FIELD = re.compile(r'"pair"\s*:\s*"?(\d{1,4})\b')
MARKS = " \t\r\n*`\"'."
LEADING = " \t\r,`*[-"
CHOICES: dict[str, Preferred] = {"1": "first", "2": "second"}
UNDECIDED = frozenset({"tie", "neither", "both", "none", "either", "equal", "draw", "0"})

MOST_BROKEN = 2 * MOST_PAIRS
"""After so many broken objects no more are looked for, so that reading takes linear time."""


class Status(StrEnum):
    """Why a pair has a verdict (`scored`), or has none."""

    SCORED = SCORED
    """The verdict was read."""
    EMPTY = "empty"
    """The reply holds nothing but white space."""
    OVERLONG = "overlong"
    """The prompt did not fit into the annotator's context, so nothing was asked."""
    FAILED = "failed"
    """The engine gave this request up."""
    TOO_LONG = "too_long"
    """The reply is longer than `MAX_REPLY`."""
    TRUNCATED = "truncated"
    """The reply ended at the token limit before its verdict."""
    REFUSAL = "refusal"
    """The reply has no verdict and opens as refusals do."""
    ECHO = "echo"
    """The reply repeats the prompt."""
    SHIFTED = "shifted"
    """The numbers in the reply are not those of the pairs, but off by a constant."""
    MISSING = "missing"
    """The reply has no statement on this pair."""
    MALFORMED = "malformed"
    """The statement on this pair is not in the form that was asked for."""
    OUT_OF_RANGE = "out_of_range"
    """The statement names an output that is not there."""
    NO_CHOICE = "no_choice"
    """The statement prefers neither, which was not offered."""
    CONTRADICTORY = "contradictory"
    """There are several statements on this pair, and they differ."""


@dataclass(frozen=True, slots=True)
class Said:
    """One statement of a reply: on which pair, which output as shown (or what is wrong), why."""

    number: int
    choice: Preferred | Status
    explanation: str = ""


def lines(text: str, expected: Expected) -> list[Said]:
    """Return the statements that are lines.

    About one pair, each line is a verdict or prose. A numbered line can be prose, too: it counts
    only if its pair has no other statement.
    """
    if not expected.several:
        single = (Said(1, _choice(line, expected)) for line in text.splitlines())
        return [statement for statement in single if statement.choice is not Status.MALFORMED]
    matches = filter(None, map(LINE.fullmatch, text.splitlines()))
    said = [Said(int(match[1]), _choice(match[2], expected)) for match in matches]
    clear = {statement.number for statement in said if statement.choice is not Status.MALFORMED}
    return [s for s in said if s.choice is not Status.MALFORMED or s.number not in clear]


def objects(text: str, expected: Expected) -> Iterator[Said]:
    """Give the statements that are JSON objects, where an object begins a line or follows another.

    An object inside a sentence is a quotation. One that can not be read counts against its pair:
    it may have quoted others.
    """
    at, line, broken = 0, 0, 0
    while (start := text.find("{", at)) >= 0 and broken < MOST_BROKEN:
        line = max(line, text.rfind("\n", at, start) + 1)
        opens = not text[line:start].strip(LEADING)
        found = _decoded(text, start) if opens else None
        if found is None:
            if opens and text[start + 1 :].lstrip()[:1] in ("'", '"'):
                broken += 1
                yield from _broken(text, start, expected)
            at = line = text.find("\n", start) + 1
            if not at:
                return
        else:
            value, at = found
            line = at
            yield from (_stated(entry, expected) for entry in _entries(value))


def _decoded(text: str, start: int) -> tuple[dict[str, object], int] | None:
    """Return the JSON object at `start` and where it ends; None if there is none."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value), end


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=_distinct, parse_int=str, parse_float=str
)
"""Numbers stay as they are written: no value is rounded into a verdict, and none is too long."""


def _entries(value: dict[str, object]) -> Iterator[dict[str, object]]:
    """Give the objects with a verdict: `value` itself, or those in a list inside it."""
    if "preferred" in value:
        yield value
        return
    for field in value.values():
        listed = cast("list[object]", field) if isinstance(field, list) else []
        for entry in listed:
            if isinstance(entry, dict) and "preferred" in entry:
                yield cast("dict[str, object]", entry)


def _stated(entry: dict[str, object], expected: Expected) -> Said:
    """Return what an object says; of no pair (-1) if it names none that is a number."""
    pair, preferred = entry.get("pair"), entry["preferred"]
    named = isinstance(pair, str) and pair.isdecimal() and len(pair) <= MOST_DIGITS
    number = int(cast("str", pair)) if named else -1
    choice = _choice(preferred, expected) if isinstance(preferred, str) else Status.MALFORMED
    explanation = entry.get("explanation")
    return Said(
        number if expected.several else 1,
        choice,
        explanation.strip() if isinstance(explanation, str) else "",
    )


def _broken(text: str, start: int, expected: Expected) -> Iterator[Said]:
    if not expected.several:
        yield Said(1, Status.MALFORMED)
        return
    end = text.find("\n{", start)
    named = PAIR_FIELD.search(text, start, end if end >= 0 else len(text))
    if named:
        yield Said(int(named[1]), Status.MALFORMED)


def _choice(text: str, expected: Expected) -> Preferred | Status:
    """Return which output a verdict names, or what is wrong with it."""
    words = text.strip(MARKS)
    if expected.form == "ranking":
        ranked = RANKED.fullmatch(words.strip("[]() "))
        if ranked:
            return _ranked(ranked[1], ranked[2], ranked[3], expected)
    match = CHOICE.fullmatch(words)
    word = match[1].lower() if match else ""
    if word in UNDECIDED:
        return "tie" if expected.ties and word == "tie" else Status.NO_CHOICE
    if expected.form == "ranking":
        return Status.MALFORMED
    if word.removeprefix("-").isdigit():
        return CHOICES.get(word, Status.OUT_OF_RANGE)
    return Status.MALFORMED


def _ranked(best: str, mark: str, other: str, expected: Expected) -> Preferred | Status:
    if not {best, other} <= CHOICES.keys():
        return Status.OUT_OF_RANGE
    if best == other:
        return Status.MALFORMED
    if mark == "=":
        return "tie" if expected.ties else Status.NO_CHOICE
    return CHOICES[best]
