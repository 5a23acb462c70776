"""The text forms in which annotators write verdicts on pairs, and the search for them in a text.

Annotators of AlpacaFarm write the better output's number alone (`token`), an object with an
explanation (`json`), or both numbers in order (`ranking`), on several pairs if need be. Nothing is
evaluated, and finding takes linear time.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from ..stores.records import Preferred
from .quoting import Stated
from .reply_schema import json_objects
from .status import Status

ReplyForm = Literal["token", "json", "ranking"]
FORMS: tuple[ReplyForm, ...] = get_args(ReplyForm)
NUMBERS: dict[Preferred, str] = {"first": "1", "second": "2", "tie": "tie"}
WORDS: dict[ReplyForm, dict[Preferred, str]] = {
    "token": NUMBERS,
    "ranking": {"first": "[1, 2]", "second": "[2, 1]", "tie": "1 = 2"},
}
"""The verdicts of forms that are not JSON."""

MOST_PAIRS = 20
"""Pairs that one prompt may hold (Appendix C.1: up to 20 do as well as 5)."""
MOST_DIGITS = 4
LINE = re.compile(r"[\s>*#-]*(?:pair\s*)?(\d{1,4})[*\s]*[:.)][*\s]*(.*)", re.IGNORECASE)
CHOICE = re.compile(r"(?:(?:output|answer|response)\s*)?\(?([\w-]+)\)?", re.IGNORECASE)
RANKED = re.compile(r"(?:output\s*)?(\d{1,4})\s*([,>=])\s*(?:output\s*)?(\d{1,4})", re.IGNORECASE)
PAIR_FIELD = re.compile(r'"pair"\s*:\s*"?(\d{1,4})\b')
MARKS = " \t\r\n*`\"'."
CHOICES: dict[str, Preferred] = {"1": "first", "2": "second"}
UNDECIDED = frozenset({"neither", "both", "none", "either", "equal", "draw", "0"})


@dataclass(frozen=True, slots=True)
class Statement(Stated):
    """One statement of a text: its pair, the preferred output as shown or an error, the reason."""

    number: int
    choice: Preferred | Status
    explanation: str = ""


def reply_of(
    form: ReplyForm, verdicts: Sequence[tuple[str, Preferred, str]], *, several: bool
) -> str:
    """Write verdicts (label, which output as shown, explanation) in a form."""
    return "\n".join(_write_verdict(form, *verdict, several=several) for verdict in verdicts)


def statements(form: ReplyForm, text: str, *, several: bool = False) -> list[Statement]:
    """Return the verdicts that a text states in a form, in their order.

    If it is about `several` pairs, each verdict has the number of its pair.
    """
    return (
        list(_objects(text, several=several))
        if form == "json"
        else _lines(form, text, several=several)
    )


def _write_verdict(
    form: ReplyForm, label: str, preferred: Preferred, explanation: str, *, several: bool
) -> str:
    if form == "json":
        named = {"pair": _number(label)} if several else {}
        document = {"explanation": explanation, "preferred": _number(NUMBERS[preferred])}
        return json.dumps(named | document, ensure_ascii=False)
    word = WORDS[form][preferred]
    return f"{label}: {word}" if several else word


def _number(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def _lines(form: ReplyForm, text: str, *, several: bool) -> list[Statement]:
    """Return the statements that are lines.

    About one pair, each line is a verdict or prose. A numbered line can be prose, too: it counts
    only if its pair lacks another statement.
    """
    statements = list[Statement]()
    at = 0
    for whole in text.splitlines(keepends=True):
        (line,), start, at = whole.splitlines(), at, at + len(whole)
        numbered = LINE.fullmatch(line) if several else None
        if numbered:
            choice = _choice(form, numbered[2])
            number, end = int(numbered[1]), start + len(line)
            statements.append(Statement(number, choice, start=start, end=end))
        elif not several:
            end = start + len(line)
            statements.append(Statement(1, _choice(form, line), start=start, end=end))
    clear = {one.number for one in statements if one.choice != Status.MALFORMED} if several else {1}
    return [one for one in statements if one.choice != Status.MALFORMED or one.number not in clear]


def _choice(form: ReplyForm, text: str) -> Preferred | Status:
    """Return the output that a line names, or the status of its error."""
    words = text.strip(MARKS)
    if form == "ranking" and (ranked := RANKED.fullmatch(words.strip("[]() "))):
        return _read_ranking(ranked[1], ranked[2], ranked[3])
    match = CHOICE.fullmatch(words)
    word = match[1].lower() if match else ""
    if word == "tie" or word in UNDECIDED:
        return "tie" if word == "tie" else Status.NO_CHOICE
    if form == "ranking" or not word.removeprefix("-").isdigit():
        return Status.MALFORMED
    return CHOICES.get(word, Status.OUT_OF_RANGE)


def _read_ranking(best: str, mark: str, other: str) -> Preferred | Status:
    if not {best, other} <= CHOICES.keys():
        return Status.OUT_OF_RANGE
    if best == other:
        return Status.MALFORMED
    return "tie" if mark == "=" else CHOICES[best]


def _objects(text: str, *, several: bool) -> Iterator[Statement]:
    """Give the statements of JSON objects; one that cannot be read counts against its pair."""
    for value, start, end in json_objects(text):
        if value is not None:
            for entry in _entries(value):
                yield replace(_read_entry(entry, several=several), start=start, end=end)
        elif text[start + 1 :].lstrip()[:1] in ("'", '"'):
            yield from _broken(text, start, several=several)


def _entries(value: dict[str, object]) -> Iterator[dict[str, object]]:
    """Give the objects with a verdict: `value` itself, or the ones in a list inside it."""
    if "preferred" in value:
        yield value
        return
    for listed in value.values():
        for entry in cast("list[object]", listed) if isinstance(listed, list) else []:
            if isinstance(entry, dict) and "preferred" in entry:
                yield cast("dict[str, object]", entry)


def _read_entry(entry: dict[str, object], *, several: bool) -> Statement:
    """Return the statement of an object; of no pair (-1) if it lacks a number of a pair."""
    pair, preferred, reason = entry.get("pair"), entry["preferred"], entry.get("explanation")
    named = isinstance(pair, str) and pair.isdecimal() and len(pair) <= MOST_DIGITS
    number = int(cast("str", pair)) if named else -1
    return Statement(
        number if several else 1,
        _choice("json", preferred) if isinstance(preferred, str) else Status.MALFORMED,
        reason.strip() if isinstance(reason, str) else "",
    )


def _broken(text: str, start: int, *, several: bool) -> Iterator[Statement]:
    """Give the statement that an object would be which cannot be read, if it names its pair."""
    end = text.find("\n{", start)
    named = PAIR_FIELD.search(text, start, end if end >= 0 else len(text))
    if not several:
        yield Statement(1, Status.MALFORMED)
    elif named:
        yield Statement(int(named[1]), Status.MALFORMED)
