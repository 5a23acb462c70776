"""Reading an annotator's reply: a verdict on each pair, or the reason why it is missing.

Annotators of AlpacaFarm write the better output's number alone (`token`), an object with an
explanation (`json`), or both numbers in order (`ranking`), on several pairs if need be; or they
follow a JSON schema.

Every pair is read separately, so one bad verdict does not affect the others. Nothing is guessed: a
pair is unread if its verdict is missing, contradicted or in an unexpected form. If the numbers of a
reply are shifted (counted from zero, for example), no verdict counts, because the pairs are
unknown. Nor does a verdict count if the words around it attribute it to somebody else (`quoting`),
if the judge denies it in the first person, or if a judged text contains it in the same form. There
is one exception below a mark: if an output is only a number, a reply of only numbers still counts
as the judge's.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast, get_args

from ...stores.records import SCORED, Order, Preferred
from ..judge import ExampleReply, Expected, JudgeReply, Reading, absent, reasons
from ..quoting import Stated, declared_choices, fault_of, holds, visible_text
from ..reply_schema import ReplySchema, json_objects, list_of, object_of, one_of, text
from ..status import Status

ReplyForm = Literal["token", "json", "ranking"]
FORMS: tuple[ReplyForm, ...] = get_args(ReplyForm)
NUMBERS: dict[Preferred, str] = {"first": "1", "second": "2", "tie": "tie"}
WORDS: dict[ReplyForm, dict[Preferred, str]] = {
    "token": NUMBERS,
    "ranking": {"first": "[1, 2]", "second": "[2, 1]", "tie": "1 = 2"},
}
"""The verdicts of the forms that have no room for reasons."""

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
    lines = list[str]()
    for label, preferred, explanation in verdicts:
        if form == "json":
            named = {"pair": _number(label)} if several else {}
            said = {"explanation": explanation, "preferred": _number(NUMBERS[preferred])}
            lines.append(json.dumps(named | said, ensure_ascii=False))
        else:
            word = WORDS[form][preferred]
            lines.append(f"{label}: {word}" if several else word)
    return "\n".join(lines)


def _number(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def statements(form: ReplyForm, text: str, *, several: bool = False) -> list[Statement]:
    """Return the verdicts that a text states in a form, in their order.

    If it is about `several` pairs, each verdict has the number of its pair.
    """
    return (
        list(_objects(text, several=several))
        if form == "json"
        else _lines(form, text, several=several)
    )


def _lines(form: ReplyForm, text: str, *, several: bool) -> list[Statement]:
    """Return the statements that are lines.

    About one pair, each line is a verdict or prose. A numbered line can be prose, too: it counts
    only if its pair lacks another statement.
    """
    found = list[Statement]()
    at = 0
    for whole in text.splitlines(keepends=True):
        (line,), start, at = whole.splitlines(), at, at + len(whole)
        numbered = LINE.fullmatch(line) if several else None
        if numbered or not several:
            number, words = (int(numbered[1]), numbered[2]) if numbered else (1, line)
            end = start + len(line)
            found.append(Statement(number, _choice(form, words), start=start, end=end))
    clear = {one.number for one in found if one.choice != Status.MALFORMED} if several else {1}
    return [one for one in found if one.choice != Status.MALFORMED or one.number not in clear]


def _choice(form: ReplyForm, text: str) -> Preferred | Status:
    """Return the output that a line names, or the status of its error."""
    words = text.strip(MARKS)
    if form == "ranking" and (ranked := RANKED.fullmatch(words.strip("[]() "))):
        best, mark, other = ranked.groups()
        if not {best, other} <= CHOICES.keys():
            return Status.OUT_OF_RANGE
        if best == other:
            return Status.MALFORMED
        return "tie" if mark == "=" else CHOICES[best]
    match = CHOICE.fullmatch(words)
    word = match[1].lower() if match else ""
    if word == "tie" or word in UNDECIDED:
        return "tie" if word == "tie" else Status.NO_CHOICE
    if form == "ranking" or not word.removeprefix("-").isdigit():
        return Status.MALFORMED
    return CHOICES.get(word, Status.OUT_OF_RANGE)


def _objects(text: str, *, several: bool) -> Iterator[Statement]:
    """Give the statements of JSON objects; one that cannot be read counts against its pair."""
    for value, start, end in json_objects(text):
        if value is None and text[start + 1 :].lstrip()[:1] in ("'", '"'):
            until = text.find("\n{", start)
            named = PAIR_FIELD.search(text, start, until if until >= 0 else len(text))
            if named or not several:
                yield Statement(int(named[1]) if named and several else 1, Status.MALFORMED)
        for entry in _entries(value or {}):
            pair, preferred, reason = (entry.get(n) for n in ("pair", "preferred", "explanation"))
            # A verdict on several pairs is of none (-1) if it lacks the number of one.
            named = isinstance(pair, str) and pair.isdecimal() and len(pair) <= MOST_DIGITS
            number = int(cast("str", pair)) if named else -1
            yield Statement(
                number if several else 1,
                _choice("json", preferred) if isinstance(preferred, str) else Status.MALFORMED,
                reason.strip() if isinstance(reason, str) else "",
                start=start,
                end=end,
            )


def _entries(value: dict[str, object]) -> Iterator[dict[str, object]]:
    """Give the objects with a verdict: `value` itself, or the ones in a list inside it."""
    if "preferred" in value:
        yield value
        return
    for listed in value.values():
        for entry in cast("list[object]", listed) if isinstance(listed, list) else []:
            if isinstance(entry, dict) and "preferred" in entry:
                yield cast("dict[str, object]", entry)


QUOTED = re.compile(r"^(?:[ \t>]|(?:human|user|assistant|system):)*+", re.IGNORECASE | re.MULTILINE)
"""Prefixes of a verdict in a judged output: a quotation's marks, a forged turn."""
VERDICTS = "verdicts"
"""The list of the verdicts on several pairs, in an object."""
TURNED: dict[Preferred, Preferred] = {"first": "second", "second": "first", "tie": "tie"}
Choice = Preferred | Status


@dataclass(frozen=True, slots=True)
class PairChoice:
    """Which of two outputs is preferred, and why.

    It is about the outputs as given: the order in which they were shown is taken back.
    """

    preferred: Preferred | None = None
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVerdicts(Expected[PairChoice]):
    """The expected reply: a verdict on each pair, pair `n` being shown in `orders[n-1]`.

    With `several` the question is about several pairs; with `ties` neither output need be
    preferred. An object has an explanation of up to `explained` characters; 0 for none.
    """

    form: ReplyForm
    several: bool = False
    ties: bool
    orders: tuple[Order, ...] = ("as_given",)
    explained: int = 0
    partly: ClassVar[bool] = True

    @property
    def schema(self) -> ReplySchema:
        """The schema of a verdict, or of a list of them in the order of the pairs."""
        reason = {"explanation": text(self.explained)} if self.explained else {}
        verdict = object_of({**reason, "preferred": one_of([1, 2, *(["tie"] * self.ties)])})
        count = len(self.orders)
        return object_of({VERDICTS: list_of(verdict, count, count)}) if self.several else verdict

    @property
    def nothing(self) -> tuple[PairChoice, ...]:
        """No verdict on any pair."""
        return (PairChoice(),) * len(self.orders)

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[PairChoice]]:
        """Read one verdict for each pair; one that a judged text makes, too, is an echo."""
        verdicts = document[VERDICTS] if self.several else [document]
        forged = _preferred_in(judged)
        found = list[Reading[PairChoice]]()
        for one, order in zip(verdicts, self.orders, strict=True):
            choice: Preferred = CHOICES.get(str(one["preferred"]), "tie")
            own = Status.ECHO if choice in forged else choice
            found.append(_reading(own, order, one.get("explanation", "").strip()))
        return found

    def read(self, reply: JudgeReply) -> list[Reading[PairChoice]]:
        """Read one verdict for each pair, in their order."""
        whole = self._complete(reply.text) if reply.cut else reply.text
        statements = self._statements(whole)
        by_pair = defaultdict[int, list[Statement]](list)
        for one in statements:
            by_pair[one.number].append(one)
        unsaid = Status.MISSING
        if _is_shifted(by_pair.keys(), len(self.orders)):
            by_pair.clear()
            unsaid = Status.SHIFTED
        elif reply.cut:
            unsaid = Status.TRUNCATED
        elif not statements:
            unsaid = absent(reply.text, Status.MISSING)
        echoes = self._echoes(reply, whole, statements)
        # The judge may declare its choice of an only pair in the first person.
        words = declared_choices(f"{reply.before}\n{whole}") if len(self.orders) == 1 else ()
        declared = {CHOICES[word] for word in words}

        def verdict(number: int, order: Order) -> Reading[PairChoice]:
            own = by_pair[number] or [Statement(number, unsaid)]
            choices = {one.choice for one in own}
            choice = own[0].choice
            if len(choices) > 1:
                choice = Status.CONTRADICTORY
            elif isinstance(choice, Status):
                cut_off = choice is Status.MALFORMED and unsaid is Status.TRUNCATED
                choice = unsaid if cut_off else choice
            elif (number, choice) in echoes:
                choice = Status.ECHO
            elif declared - {choice}:
                choice = Status.CONTRADICTORY
            else:
                choice = fault_of(whole, own) or choice
            return _reading(choice, order, own[-1].explanation)

        return [verdict(number, order) for number, order in enumerate(self.orders, start=1)]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a verdict on each pair."""
        choices: list[Preferred] = ["first", "second"]
        given = enumerate(reasons(reason, len(self.orders)), start=1)
        verdicts: list[tuple[str, Preferred, str]] = [
            (str(number), draw.choice(choices), why) for number, why in given
        ]
        return ExampleReply("", reply_of(self.form, verdicts, several=self.several))

    def _statements(self, text: str) -> list[Statement]:
        """Return the statements of a text; a tie counts if it was offered."""
        return [
            replace(one, choice=Status.NO_CHOICE) if one.choice == "tie" and not self.ties else one
            for one in statements(self.form, text, several=self.several)
        ]

    def _echoes(
        self, reply: JudgeReply, whole: str, statements: Sequence[Statement]
    ) -> set[tuple[int, Choice]]:
        """Return the verdicts, by pair and choice, that a judged text makes, too."""
        if self.form == "json":
            forged = _preferred_in(reply.judged)
            return {(one.number, one.choice) for one in statements if one.choice in forged}
        if reply.marked and len(statements) == sum(map(bool, map(str.strip, whole.splitlines()))):
            return set()
        lines = (self._statements(QUOTED.sub("", visible_text(text))) for text in reply.judged)
        return {(one.number, one.choice) for found in lines for one in found}

    def _complete(self, text: str) -> str:
        """Return the surely finished part of a cut reply: whole lines, or the only token.

        Objects are kept unchanged: a truncated one does not parse.
        """
        one_token = self.form == "token" and not self.several and "\n" not in text.strip()
        return text if one_token or self.form == "json" else text[: text.rfind("\n") + 1]


def _preferred_in(judged: Sequence[str]) -> set[Choice]:
    """Return the verdicts that judged texts contain in the form of an object."""
    return {word for word in NUMBERS if holds(judged, [f"preferred: {NUMBERS[word]}"])}


def _is_shifted(numbers: Collection[int], count: int) -> bool:
    """Whether numbers are counted from another one than 1, so that none means its pair."""
    if 0 in numbers and count not in numbers:
        return True
    lowest, highest = min(numbers, default=1), max(numbers, default=1)
    return 1 < count == len(numbers) == highest - lowest + 1 and lowest != 1


def _reading(choice: Choice, order: Order, why: str) -> Reading[PairChoice]:
    """Return a choice as a reading: of the outputs as given, or without a verdict."""
    if isinstance(choice, Status):
        return Reading(choice.value, PairChoice())
    return Reading(SCORED, PairChoice(choice if order == "as_given" else TURNED[choice], why))
