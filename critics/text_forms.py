"""The text forms in which judges write verdicts and scores, and the search for them in a text.

Verdicts on pairs: annotators of AlpacaFarm write the better output's number alone (`token`), an
object with an explanation (`json`), or both numbers in order (`ranking`), on several pairs if need
be. Published judges write a verdict on one pair below their reasons: "Output 1 is better."
(`sentence`: LLMBar, PandaLM), [[A]] (`brackets`: MT-bench), or an object with a "choice" (`choice`:
WildBench).

Scores of one text: `Overall score: 7` (`line`); `[RESULT] 7` (`result`: Prometheus); `Rating:
[[7]]` (`brackets`: MT-bench); `7 out of 10` at the end of a line that names it a score, or contains
only that (`out_of`); an object with a "score" (`json`: JustEval, WildBench).

Nothing is evaluated, and finding takes linear time.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast, get_args

from ..stores.records import Preferred
from .declared_verdicts import stated_choices
from .json_objects import LEADING, decode_object, json_objects
from .quoting import Stated
from .status import Status, UnreadError

ListedForm = Literal["token", "json", "ranking"]
StatedForm = Literal["sentence", "brackets", "choice"]
ReplyForm = Literal[ListedForm, StatedForm]
LISTED_FORMS: tuple[ListedForm, ...] = get_args(ListedForm)
STATED_FORMS: tuple[StatedForm, ...] = get_args(StatedForm)
ScoreForm = Literal["line", "result", "brackets", "out_of", "json"]
SCORE_FORMS: tuple[ScoreForm, ...] = get_args(ScoreForm)
NUMBERS: dict[Preferred, str] = {"first": "1", "second": "2", "tie": "tie"}
LETTERS: dict[Preferred, str] = {"first": "A", "second": "B", "tie": "C"}
CHOSEN_NAMES: dict[Preferred, str] = {"first": "A", "second": "B", "tie": "A=B"}
WORDS: dict[ReplyForm, dict[Preferred, str]] = {
    "token": NUMBERS,
    "ranking": {"first": "[1, 2]", "second": "[2, 1]", "tie": "1 = 2"},
    "sentence": {
        "first": "Output 1 is better.",
        "second": "Output 2 is better.",
        "tie": "Both outputs are equally good.",
    },
    "brackets": {label: f"[[{letter}]]" for label, letter in LETTERS.items()},
}
"""The verdicts of forms that are not JSON."""

MOST_PAIRS = 20
"""Pairs that one prompt may hold (Appendix C.1: up to 20 do as well as 5)."""
MOST_BROKEN = 2 * MOST_PAIRS
"""The limit of broken objects that are searched, so that reading takes linear time."""
MOST_DIGITS = 4
LINE = re.compile(r"[\s>*#-]*(?:pair\s*)?(\d{1,4})[*\s]*[:.)][*\s]*(.*)", re.IGNORECASE)
CHOICE = re.compile(r"(?:(?:output|answer|response)\s*)?\(?([\w-]+)\)?", re.IGNORECASE)
RANKED = re.compile(r"(?:output\s*)?(\d{1,4})\s*([,>=])\s*(?:output\s*)?(\d{1,4})", re.IGNORECASE)
PAIR_FIELD = re.compile(r'"pair"\s*:\s*"?(\d{1,4})\b')
BRACKETS = re.compile(r"\[\[([^\[\]\n]{0,20})\]\]")
MARKS = " \t\r\n*`\"'."
CHOICES: dict[str, Preferred] = {"1": "first", "2": "second"}
UNDECIDED = frozenset({"neither", "both", "none", "either", "equal", "draw", "0"})
LABEL = r"[ \t>*#\[_`-]*"
"""Characters that Markdown may put before a label."""
SCORE = r"overall[ \t]+score"
_CALLED = re.compile(
    r"\b(?:scores?|scored|rating|rated?|grade[ds]?|marks?|give|gave|award(?:ed)?|assign(?:ed)?|"
    r"deserves?|earns?|verdict)\b",
    re.IGNORECASE,
)
_KEYED = re.compile(r"[{}]|[\"'][ \t]*:")
"""Signs that a line belongs to an object."""
_SENTENCE = re.compile(r"(?<=[.!?;]) ")
_LETTER: dict[str, Preferred] = {letter: label for label, letter in LETTERS.items()}
_STRONG = re.compile(r"([AB])\+{0,2}")
"""WildBench's judges grade their preference: A++, A+. Here any of these prefers A."""


@dataclass(frozen=True, slots=True)
class Statement(Stated):
    """One statement of a text: its pair, the preferred output as shown or an error, the reason.

    With `denied`, the statement denies that this output is preferred.
    """

    number: int
    choice: Preferred | Status
    explanation: str = ""
    denied: bool = False


def reply_of(
    form: ReplyForm, verdicts: Sequence[tuple[str, Preferred, str]], *, several: bool
) -> str:
    """Write verdicts (label, which output as shown, explanation) in a form."""
    return "\n".join(_write_verdict(form, *verdict, several=several) for verdict in verdicts)


def statements(form: ReplyForm, text: str, *, several: bool = False) -> list[Statement]:
    """Return the verdicts that a text states in a form, in their order.

    If it is about `several` pairs, each verdict has the number of its pair.
    """
    match form:
        case "json":
            return list(_objects(text, several=several))
        case "choice":
            return list(_choices(text))
        case "brackets":
            return [
                Statement(
                    1,
                    _LETTER.get(m[1].strip().upper(), Status.MALFORMED),
                    start=m.start(),
                    end=m.end(),
                )
                for m in BRACKETS.finditer(text)
            ]
        case "sentence":
            found = sorted(stated_choices(text), key=lambda each: each.start)
            return [
                Statement(1, one.preferred, start=one.start, end=one.end, denied=one.denied)
                for one in found
            ]
        case _:
            return _lines(form, text, several=several)


def _write_verdict(
    form: ReplyForm, label: str, preferred: Preferred, explanation: str, *, several: bool
) -> str:
    if form == "choice":
        said = {"reason": explanation, "choice": CHOSEN_NAMES[preferred]}
        return json.dumps(said, ensure_ascii=False)
    if form == "json":
        named = {"pair": _number(label)} if several else {}
        said = {"explanation": explanation, "preferred": _number(NUMBERS[preferred])}
        return json.dumps(named | said, ensure_ascii=False)
    word = WORDS[form][preferred]
    return f"{label}: {word}" if several else word


def _number(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def _lines(form: ReplyForm, text: str, *, several: bool) -> list[Statement]:
    """Return the statements that are lines.

    About one pair, each line is a verdict or prose. A numbered line can be prose, too: it counts
    only if its pair lacks another statement.
    """
    said = list[Statement]()
    at = 0
    for whole in text.splitlines(keepends=True):
        (line,), start, at = whole.splitlines(), at, at + len(whole)
        numbered = LINE.fullmatch(line) if several else None
        if numbered:
            choice = _choice(form, numbered[2])
            number, end = int(numbered[1]), start + len(line)
            said.append(Statement(number, choice, start=start, end=end))
        elif not several:
            end = start + len(line)
            said.append(Statement(1, _choice(form, line), start=start, end=end))
    clear = {one.number for one in said if one.choice != Status.MALFORMED} if several else {1}
    return [one for one in said if one.choice != Status.MALFORMED or one.number not in clear]


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


def _choices(text: str) -> Iterator[Statement]:
    """Give the choices of JSON objects; one that cannot be read may have been the verdict."""
    for value, start, end in json_objects(text):
        if value is None:
            yield Statement(1, Status.MALFORMED, start=start, end=end)
        elif "choice" in value:
            choice, reason = value["choice"], value.get("reason")
            word = choice.strip() if isinstance(choice, str) else ""
            strong = _STRONG.fullmatch(word)
            said = _LETTER[strong[1]] if strong else Status.MALFORMED
            if word in (CHOSEN_NAMES["tie"], "B=A", "tie"):
                said = "tie"
            why = reason.strip() if isinstance(reason, str) else ""
            yield Statement(1, said, why, start=start, end=end)


def _objects(text: str, *, several: bool) -> Iterator[Statement]:
    """Give the statements that are JSON objects which begin a line, or follow another.

    An object inside a sentence is a quotation. One that cannot be read counts against its pair: it
    may have quoted others.
    """
    at, line, broken = 0, 0, 0
    while (start := text.find("{", at)) >= 0 and broken < MOST_BROKEN:
        line = max(line, text.rfind("\n", at, start) + 1)
        opens = not text[line:start].strip(LEADING)
        found = decode_object(text, start) if opens else None
        if found is not None:
            value, at = found
            line = at
            for entry in _entries(value):
                yield replace(_read_entry(entry, several=several), start=start, end=at)
            continue
        if opens and text[start + 1 :].lstrip()[:1] in ("'", '"'):
            broken += 1
            yield from _broken(text, start, several=several)
        at = line = text.find("\n", start) + 1
        if not at:
            return


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


class ScoreText(NamedTuple):
    """How a score is written, the pattern that finds it, and one that finds it in any context."""

    written: str
    pattern: re.Pattern[str]
    dressed: str | None


SCORE_TEXTS: Mapping[ScoreForm, ScoreText] = {
    "line": ScoreText(
        "Overall score: {score}",
        re.compile(rf"^{LABEL}{SCORE}[*_` \t]*:(.*)$", re.IGNORECASE | re.MULTILINE),
        "overall score: {score:g}",
    ),
    "result": ScoreText(
        "[RESULT] {score}",
        re.compile(r"\[RESULT\][ \t]*:?(.*)$", re.IGNORECASE | re.MULTILINE),
        "[RESULT] {score:g}",
    ),
    "brackets": ScoreText("Rating: [[{score}]]", BRACKETS, "[[{score:g}]]"),
    "out_of": ScoreText(
        "Score: {score} out of {best}",
        re.compile(
            r"(?<![\w./])([+-]?[0-9]{1,4}(?:\.[0-9]{1,4})?)[ \t]*(?:/|out[ \t]+of)[ \t]*"
            r"([0-9]{1,4})(?![\w/]|\.[0-9])(?=[^\w\n]*$)",
            re.IGNORECASE | re.MULTILINE,
        ),
        None,
    ),
}
"""The forms of scores in plain text."""


@dataclass(frozen=True, slots=True)
class WrittenScore(Stated):
    """A written score, and its position."""

    text: str


def written_scores(form: ScoreForm, text: str) -> Iterator[WrittenScore]:
    """Give the scores written in a form.

    Raises:
        UnreadError: if an object cannot be read: it may have had the score.
    """
    if form == "json":
        yield from _scores_of_objects(text)
        return
    for match in SCORE_TEXTS[form].pattern.finditer(text):
        if form != "out_of":
            yield WrittenScore(match[1], start=match.start(), end=match.end())
        elif _is_score(text, match.start()):
            both = f"{match[1]}/{match[2]}"
            yield WrittenScore(both, start=match.start(), end=match.end())


def with_score(form: ScoreForm, score: float, best: int, critique: str) -> tuple[str, str]:
    """Return a critique, and its score on a scale up to `best` in a form, which may hold both."""
    number = int(score) if score == int(score) else score
    if form != "json":
        return critique, SCORE_TEXTS[form].written.format(score=number, best=best)
    return "", json.dumps({"critique": critique, "score": number}, ensure_ascii=False)


def _scores_of_objects(text: str) -> Iterator[WrittenScore]:
    for value, start, end in json_objects(text):
        said = None if value is None else value.get("score")
        if value is None or (said is not None and not isinstance(said, str)):
            raise UnreadError(Status.MALFORMED)
        if said is not None:
            yield WrittenScore(said, start=start, end=end)


def _is_score(text: str, start: int) -> bool:
    """Whether a line announces the score at its end, or consists only of it."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    lead = _SENTENCE.split(line)[-1].strip(" \t*_`#>(-:")
    return not lead or (_CALLED.search(lead) is not None and not _KEYED.search(lead))
