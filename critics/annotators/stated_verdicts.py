"""Reading a verdict on one pair in the forms of published judges: a sentence, [[A]], a "choice".

The judge reasons first, and what it states must be one thing: a reply that states both outputs, or
denies what it states, is contradictory. A verdict that a judged text makes in the same form is an
echo, and one cut at the token limit may not be the last, so that it is none. Another form than the
one asked for is not read.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...stores.records import SCORED, Preferred
from ..json_objects import json_objects
from ..judge import ExampleReply, HeardReply, Reading, absent
from ..quoting import declared_choices, foreign, seen
from ..status import Status, UnreadError
from .declared_verdicts import stated_choices
from .pair_verdicts import TURNED, PairChoice, PairReply, Statement
from .written_verdicts import CHOSEN_NAMES, LETTERS, StatedForm, reply_of

REASONS_FIRST = (
    "Write your reasons first. Then write the line {mark} by itself, and below it your verdict."
)
_BRACKETS = re.compile(r"\[\[([^\[\]\n]{0,20})\]\]")
_STRONG = re.compile(r"([AB])\+{0,2}")
"""WildBench's judges say how much better: A++, A+. Here any of these prefers A."""
_LABELS: dict[str, Preferred] = {letter: label for label, letter in LETTERS.items()}
DECLARED: dict[str, Preferred] = {"1": "first", "2": "second"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedVerdict(PairReply):
    """One verdict on one pair, as a published judge states it."""

    form: StatedForm

    @property
    def place(self) -> str:
        """Where the line with the mark goes: below the reasons."""
        return REASONS_FIRST

    def read(self, reply: HeardReply) -> list[Reading[PairChoice]]:
        """Read the verdict.

        Raises:
            UnreadError: if there is none that is the judge's own.
        """
        said, denied = self._statements(reply.text)
        if not said:
            unsaid = Status.NEGATED if denied else Status.MISSING
            raise UnreadError(absent(reply.text, unsaid))
        choices: set[Preferred | Status] = {statement.choice for statement in said}
        if len(choices) > 1:
            raise UnreadError(Status.CONTRADICTORY)
        (choice,) = choices
        if isinstance(choice, Status):
            raise UnreadError(choice)
        whole = f"{reply.before}\n{reply.text}"
        declared = {DECLARED[word] for word in declared_choices(whole)}
        if choice in denied or declared - {choice}:
            raise UnreadError(Status.CONTRADICTORY)
        if choice in self.stated_in(reply.judged):
            raise UnreadError(Status.ECHO)
        self._require_own(reply.text, said)
        preferred = choice if self.orders[0] == "as_given" else TURNED[choice]
        why = said[-1].explanation or f"{reply.before}\n{reply.text[: said[-1].start]}".strip()
        return [Reading(SCORED, PairChoice(preferred, why))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return reasons and a verdict."""
        sides: list[Preferred] = ["first", "second"]
        verdict = reply_of(self.form, [("1", draw.choice(sides), reason)], several=False)
        return ExampleReply("" if self.form == "choice" else reason, verdict)

    def stated_in(self, judged: Sequence[str]) -> frozenset[Preferred | Status]:
        """Return the verdicts that judged texts state in the same form."""
        stated = (self._statements(seen(text))[0] for text in judged)
        return frozenset(one.choice for found in stated for one in found)

    def _statements(self, text: str) -> tuple[list[Statement], set[Preferred]]:
        """Return what a text states, in its order, and the choices that it denies."""
        if self.form == "brackets":
            return [self._bracketed(match) for match in _BRACKETS.finditer(text)], set()
        if self.form == "choice":
            return self._objects(text), set()
        found = sorted(stated_choices(text), key=lambda each: each.start)
        said = [
            Statement(1, self._offered(each.preferred), "", each.start, each.end)
            for each in found
            if not each.denied
        ]
        return said, {each.preferred for each in found if each.denied}

    def _bracketed(self, match: re.Match[str]) -> Statement:
        label = _LABELS.get(match[1].strip().upper())
        choice = self._offered(label) if label else Status.MALFORMED
        return Statement(1, choice, "", match.start(), match.end())

    def _objects(self, text: str) -> list[Statement]:
        """Return the choices of JSON objects; one that cannot be read may have been the verdict."""
        found: list[Statement] = []
        for value, start, end in json_objects(text):
            if value is None:
                found.append(Statement(1, Status.MALFORMED, "", start, end))
            elif "choice" in value:
                reason = value.get("reason")
                why = reason.strip() if isinstance(reason, str) else ""
                found.append(Statement(1, self._named(value["choice"]), why, start, end))
        return found

    def _named(self, choice: object) -> Preferred | Status:
        """Return which output a "choice" names."""
        word = choice.strip() if isinstance(choice, str) else ""
        if word in (CHOSEN_NAMES["tie"], "B=A", "tie"):
            return self._offered("tie")
        strong = _STRONG.fullmatch(word)
        return _LABELS[strong[1]] if strong else Status.MALFORMED

    def _offered(self, choice: Preferred) -> Preferred | Status:
        return Status.NO_CHOICE if choice == "tie" and not self.ties else choice

    def _require_own(self, text: str, said: Sequence[Statement]) -> None:
        """Refuse a verdict of which neither the first nor the last statement is the judge's own.

        Raises:
            UnreadError: if it is so.
        """
        faults = [foreign(text, one.start, one.end) for one in (said[0], said[-1])]
        if None not in faults:
            raise UnreadError(faults[-1] or Status.QUOTED)
