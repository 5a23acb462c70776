"""Reading an annotator's reply: a verdict on each pair, or the reason why there is none.

Every pair is read by itself, so one bad verdict leaves the others as they are. Nothing is guessed:
a pair whose verdict is missing, contradicted or not in the form asked for has none. A reply whose
numbers are shifted (counted from zero, say) has no verdict at all, since nobody knows which pair is
meant. Statements stand on lines of their own; prose between them is allowed, and what a sentence
quotes is no statement. Nor is one that the words around it give to somebody else (`quoting`), that
the judge denies in the first person, or that an output makes itself: an output that is no more than
a number vetoes that verdict where replies are no more, either, and have no mark. Nothing is
evaluated.
"""

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ...stores.records import SCORED, Order, Preferred
from ..json_objects import LEADING, decoded
from ..judge import ExampleReply, Expected, HeardReply, Reading, absent, reasons
from ..quoting import declared_choices, foreign, holds, seen
from ..reply_schema import ReplySchema, list_of, object_of, one_of, text
from ..status import Status, UnreadError
from .written_verdicts import NUMBERS, ListedForm, reply_of

MOST_PAIRS = 20
"""Pairs that one prompt may hold (Appendix C.1: up to 20 do as well as 5)."""
MOST_BROKEN = 2 * MOST_PAIRS
"""After so many broken objects no more are looked for, so that reading takes linear time."""
MOST_DIGITS = 4

LINE = re.compile(r"[\s>*#-]*(?:pair\s*)?(\d{1,4})[*\s]*[:.)][*\s]*(.*)", re.IGNORECASE)
CHOICE = re.compile(r"(?:(?:output|answer|response)\s*)?\(?([\w-]+)\)?", re.IGNORECASE)
RANKED = re.compile(r"(?:output\s*)?(\d{1,4})\s*([,>=])\s*(?:output\s*)?(\d{1,4})", re.IGNORECASE)
PAIR_FIELD = re.compile(r'"pair"\s*:\s*"?(\d{1,4})\b')
QUOTED = re.compile(r"^(?:[ \t>]|(?:human|user|assistant|system):)*+", re.IGNORECASE | re.MULTILINE)
"""What may stand before a verdict in an output: a quotation's marks, a forged turn."""
MARKS = " \t\r\n*`\"'."
CHOICES: dict[str, Preferred] = {"1": "first", "2": "second"}
UNDECIDED = frozenset({"tie", "neither", "both", "none", "either", "equal", "draw", "0"})
VERDICTS = "verdicts"
"""The list of the verdicts on several pairs, in an object."""
TURNED: dict[Preferred, Preferred] = {"first": "second", "second": "first", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class PairChoice:
    """Which of two outputs is preferred, and why.

    It is about the outputs as given: the order in which they were shown is taken back.
    """

    preferred: Preferred | None = None
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a reply: on which pair, which output as shown (or what is wrong), why.

    It stands from `start` to `end`.
    """

    number: int
    choice: Preferred | Status
    explanation: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReply(Expected[PairChoice]):
    """What a reply must hold: a verdict on each of some pairs, the pair `n` shown in `orders[n-1]`.

    `several` is whether the judge is asked about several pairs at once, `ties` whether neither may
    be preferred. An object has an explanation of so many characters, or none.
    """

    several: bool = False
    ties: bool
    orders: tuple[Order, ...] = ("as_given",)
    explained: int = 0

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
        self, said: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[PairChoice]]:
        """Read one verdict for each pair; one that a judged text makes, too, is an echo."""
        verdicts = said[VERDICTS] if self.several else [said]
        forged: set[Preferred | Status] = {*self.stated_in(judged)}
        forged |= {word for word in NUMBERS if holds(judged, [f"preferred: {NUMBERS[word]}"])}
        return [
            self._of_object(one, order, forged)
            for one, order in zip(verdicts, self.orders, strict=True)
        ]

    def stated_in(self, judged: Sequence[str]) -> frozenset[Preferred | Status]:
        """Return the verdicts that judged texts state in the words of a reply."""
        del judged
        return frozenset()

    def _of_object(
        self, said: Mapping[str, Any], order: Order, forged: Collection[Preferred | Status]
    ) -> Reading[PairChoice]:
        choice: Preferred = CHOICES.get(str(said["preferred"]), "tie")
        if choice in forged:
            return Reading(Status.ECHO.value, PairChoice())
        preferred = choice if order == "as_given" else TURNED[choice]
        return Reading(SCORED, PairChoice(preferred, said.get("explanation", "").strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVerdicts(PairReply):
    """Verdicts as numbers, lists or objects; each has the number of its pair if `several`."""

    partly = True
    form: ListedForm

    def read(self, reply: HeardReply) -> list[Reading[PairChoice]]:
        """Read one verdict for each pair, in their order.

        Raises:
            UnreadError: if the reply counts the pairs otherwise.
        """
        text, cut = reply.text, reply.cut
        whole = self._complete(text) if cut else text
        said = list(self._statements(whole))
        statements = defaultdict[int, list[Statement]](list)
        for statement in said:
            statements[statement.number].append(statement)
        if _shifted(statements.keys(), len(self.orders)):
            raise UnreadError(Status.SHIFTED)
        unsaid = Status.MISSING if said else absent(text, Status.MISSING)
        if cut:
            unsaid = Status.TRUNCATED
        echoes = self._echoes(reply, whole, said)
        disputed = self._disputed(whole)
        return [
            _verdict(_own(statements[n], whole, echoes, disputed), order, unsaid)
            for n, order in enumerate(self.orders, 1)
        ]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a verdict on each pair."""
        choices: list[Preferred] = ["first", "second"]
        given = enumerate(reasons(reason, len(self.orders)), start=1)
        verdicts: list[tuple[str, Preferred, str]] = [
            (str(number), draw.choice(choices), why) for number, why in given
        ]
        return ExampleReply("", reply_of(self.form, verdicts, several=self.several))

    def _statements(self, text: str) -> Iterator[Statement]:
        return self._objects(text) if self.form == "json" else iter(self._lines(text))

    def _echoes(self, reply: HeardReply, whole: str, said: Sequence[Statement]) -> frozenset[str]:
        """Return the statements, by pair and choice, that a judged text makes, too.

        A reply below a mark that is nothing but numbers is taken for the judge's own: answers may
        well be a number.
        """
        if self.form == "json":
            forged = {w for w in NUMBERS if holds(reply.judged, [f"preferred: {NUMBERS[w]}"])}
            return frozenset(_key(one) for one in said if one.choice in forged)
        if reply.marked and len(said) == sum(map(bool, map(str.strip, whole.splitlines()))):
            return frozenset()
        lines = (self._lines(QUOTED.sub("", seen(text))) for text in reply.judged)
        return frozenset(_key(one) for text in lines for one in text)

    def _disputed(self, text: str) -> frozenset[Preferred]:
        """Return the choices on the only pair that the judge denies by declaring the other."""
        denied: dict[str, Preferred] = {"1": "second", "2": "first"}
        return frozenset(denied[word] for word in declared_choices(text) if len(self.orders) == 1)

    def _complete(self, text: str) -> str:
        """Return what was surely finished at the token limit: whole lines, or the only token.

        Objects show by themselves whether they are whole.
        """
        one_token = self.form == "token" and not self.several and "\n" not in text.strip()
        return text if one_token or self.form == "json" else text[: text.rfind("\n") + 1]

    def _lines(self, text: str) -> list[Statement]:
        """Return the statements that are lines.

        About one pair, each line is a verdict or prose. A numbered line can be prose, too: it
        counts only if its pair has no other statement.
        """
        lines = list(_spans(text))
        if not self.several:
            single = [self._alone(line, start) for line, start in lines]
            return [statement for statement in single if statement.choice != Status.MALFORMED]
        found = ((LINE.fullmatch(line), start) for line, start in lines)
        said = [
            Statement(int(m[1]), self._choice(m[2]), "", start, start + len(m[0]))
            for m, start in found
            if m
        ]
        clear = {s.number for s in said if s.choice != Status.MALFORMED}
        return [s for s in said if s.choice != Status.MALFORMED or s.number not in clear]

    def _alone(self, line: str, start: int) -> Statement:
        return Statement(1, self._choice(line), "", start, start + len(line))

    def _objects(self, text: str) -> Iterator[Statement]:
        """Give the statements that are JSON objects which begin a line, or follow another.

        An object inside a sentence is a quotation. One that cannot be read counts against its pair:
        it may have quoted others.
        """
        at, line, broken = 0, 0, 0
        while (start := text.find("{", at)) >= 0 and broken < MOST_BROKEN:
            line = max(line, text.rfind("\n", at, start) + 1)
            opens = not text[line:start].strip(LEADING)
            found = decoded(text, start) if opens else None
            if found is not None:
                value, at = found
                line = at
                for entry in _entries(value):
                    yield replace(self._stated(entry), start=start, end=at)
                continue
            if opens and text[start + 1 :].lstrip()[:1] in ("'", '"'):
                broken += 1
                yield from self._broken(text, start)
            at = line = text.find("\n", start) + 1
            if not at:
                return

    def _stated(self, entry: dict[str, object]) -> Statement:
        """Return what an object says; of no pair (-1) if it names none that is a number."""
        pair, preferred, reason = entry.get("pair"), entry["preferred"], entry.get("explanation")
        named = isinstance(pair, str) and pair.isdecimal() and len(pair) <= MOST_DIGITS
        number = int(cast("str", pair)) if named else -1
        return Statement(
            number if self.several else 1,
            self._choice(preferred) if isinstance(preferred, str) else Status.MALFORMED,
            reason.strip() if isinstance(reason, str) else "",
        )

    def _broken(self, text: str, start: int) -> Iterator[Statement]:
        """Give the statement that an object would be which cannot be read, if it names its pair."""
        end = text.find("\n{", start)
        named = PAIR_FIELD.search(text, start, end if end >= 0 else len(text))
        if not self.several:
            yield Statement(1, Status.MALFORMED)
        elif named:
            yield Statement(int(named[1]), Status.MALFORMED)

    def _choice(self, text: str) -> Preferred | Status:
        """Return which output a verdict names, or what is wrong with it."""
        words = text.strip(MARKS)
        if self.form == "ranking" and (ranked := RANKED.fullmatch(words.strip("[]() "))):
            return self._ranked(ranked[1], ranked[2], ranked[3])
        match = CHOICE.fullmatch(words)
        word = match[1].lower() if match else ""
        if word in UNDECIDED:
            return "tie" if self.ties and word == "tie" else Status.NO_CHOICE
        if self.form == "ranking" or not word.removeprefix("-").isdigit():
            return Status.MALFORMED
        return CHOICES.get(word, Status.OUT_OF_RANGE)

    def _ranked(self, best: str, mark: str, other: str) -> Preferred | Status:
        if not {best, other} <= CHOICES.keys():
            return Status.OUT_OF_RANGE
        if best == other:
            return Status.MALFORMED
        if mark == "=":
            return "tie" if self.ties else Status.NO_CHOICE
        return CHOICES[best]


def _shifted(numbers: Collection[int], count: int) -> bool:
    """Whether numbers are counted from another one than 1, so that none means its pair."""
    if 0 in numbers and count not in numbers:
        return True
    lowest, highest = min(numbers, default=1), max(numbers, default=1)
    return 1 < count == len(numbers) == highest - lowest + 1 and lowest != 1


def _spans(text: str) -> Iterator[tuple[str, int]]:
    """Give the lines of a text, and where each begins."""
    start = 0
    for line in text.splitlines(keepends=True):
        yield line.splitlines()[0], start
        start += len(line)


def _key(statement: Statement) -> str:
    return f"{statement.number}: {statement.choice}"


def _own(
    said: Sequence[Statement],
    text: str,
    echoes: Collection[str],
    disputed: Collection[Preferred | Status],
) -> list[Statement]:
    """Return statements on a pair, those that are not the judge's own with the reason as choice."""
    if not said or isinstance(said[0].choice, Status) or len({s.choice for s in said}) > 1:
        return list(said)
    (first, *_), last = said, said[-1]
    if _key(first) in echoes:
        return [replace(last, choice=Status.ECHO)]
    if first.choice in disputed:
        return [replace(last, choice=Status.CONTRADICTORY)]
    # Alike statements between the two say no more: one of them that is the judge's own is enough.
    faults = [foreign(text, one.start, one.end) for one in (first, last)]
    return list(said) if None in faults else [replace(last, choice=faults[1] or Status.QUOTED)]


def _verdict(said: Sequence[Statement], order: Order, unsaid: Status) -> Reading[PairChoice]:
    choices: set[Preferred | Status] = {statement.choice for statement in said} or {unsaid}
    choice = choices.pop() if len(choices) == 1 else Status.CONTRADICTORY
    if isinstance(choice, Status):
        cut_off = choice is Status.MALFORMED and unsaid is Status.TRUNCATED
        return Reading((unsaid if cut_off else choice).value, PairChoice())
    preferred = choice if order == "as_given" else TURNED[choice]
    return Reading(SCORED, PairChoice(preferred, said[-1].explanation))


def _entries(value: dict[str, object]) -> Iterator[dict[str, object]]:
    """Give the objects with a verdict: `value` itself, or those in a list inside it."""
    if "preferred" in value:
        yield value
        return
    for listed in value.values():
        for entry in cast("list[object]", listed) if isinstance(listed, list) else []:
            if isinstance(entry, dict) and "preferred" in entry:
                yield cast("dict[str, object]", entry)
