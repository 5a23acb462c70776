"""Reading an annotator's reply: a verdict on each pair, or the reason why it is missing.

Every pair is read separately, so one bad verdict does not affect the others. Nothing is guessed: a
pair is unread if its verdict is missing, contradicted or in an unexpected form. If the numbers of a
reply are shifted (counted from zero, for example), no verdict counts, because the pairs are
unknown. Nor does a verdict count if the words around it attribute it to somebody else (`quoting`),
if the judge denies it in the first person, or if a judged text contains it in the same form. There
is one exception below a mark: if an output is only a number, a reply of only numbers still counts
as the judge's.
"""

import random
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...stores.records import SCORED, Order, Preferred
from ..judge import ExampleReply, Expected, JudgeReply, Reading, absent, reasons
from ..quoting import declared_choices, fault_of, holds, visible_text
from ..reply_schema import ReplySchema, list_of, object_of, one_of, text
from ..status import Status
from ..text_forms import CHOICES, NUMBERS, ReplyForm, Statement, reply_of, statements

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
        echoes, declared = (
            self._echoes(reply, whole, statements),
            self._declared_verdicts(reply, whole),
        )

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

    def _declared_verdicts(self, reply: JudgeReply, whole: str) -> set[Choice]:
        """Return the choices that the judge declares in the first person, of an only pair."""
        if len(self.orders) > 1:
            return set()
        return {CHOICES[word] for word in declared_choices(f"{reply.before}\n{whole}")}

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
