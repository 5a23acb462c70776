"""Reading a reply about statements: what the reference says of each of them.

A line with a number, a colon and a verdict counts; about a single statement the number may be
missing. Each statement is read by itself, but a number that no statement has makes the reply
unread: nobody knows which statement its verdicts are about.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...stores.records import SCORED, Support
from ..judge import ExampleReply, Expected, HeardReply, Reading, absent, reasons
from ..quoting import holds
from ..reply_schema import ReplySchema, comment, list_of, object_of, one_of
from ..status import Status, UnreadError

WORDS: dict[Support, str] = {
    "supported": "supported",
    "not_supported": "not supported",
    "irrelevant": "irrelevant",
}
VERDICTS = "verdicts"
"""The list of the verdicts, in an object."""
_SAID: dict[str, Support] = {
    **{word: support for support, word in WORDS.items()},
    "unsupported": "not_supported",
}
_LINE = re.compile(
    r"[ \t>*#-]*(?:(?:statement[ \t]+)?(?P<number>[0-9]{1,4})[*_` \t]*[:.)][*_` \t]*)?"
    r"(?P<verdict>not[ _-]+supported|unsupported|supported|irrelevant)\b[*_`]*[ \t]*"
    r"(?:[.:;,(\u2013\u2014-]+[ \t]*(?P<reason>.*))?",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:not[ _-]+supported|unsupported|irrelevant)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StatementSupport:
    """What a reference says of a statement, and why."""

    verdict: Support | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SupportVerdicts(Expected[StatementSupport]):
    """What a reply must hold: a verdict on each of `count` statements."""

    count: int

    @property
    def schema(self) -> ReplySchema:
        """The schema of a list with the verdict on each statement, in their order."""
        verdict = {"reason": comment(self.count), "verdict": one_of([*WORDS.values()])}
        return object_of({VERDICTS: list_of(object_of(verdict), self.count, self.count)})

    def read_object(
        self, said: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[StatementSupport]]:
        """Read a verdict on each statement; one that a judged text gives is an echo."""
        return [
            Reading(Status.ECHO.value, StatementSupport())
            if holds(judged, [f"{number}: {one['verdict']}"])
            or holds(judged, [f"verdict: {one['verdict']}"])
            else Reading(SCORED, StatementSupport(_SAID[one["verdict"]], one["reason"].strip()))
            for number, one in enumerate(said[VERDICTS], start=1)
        ]

    @property
    def nothing(self) -> tuple[StatementSupport, ...]:
        """No verdict on any statement."""
        return (StatementSupport(),) * self.count

    def read(self, reply: HeardReply) -> list[Reading[StatementSupport]]:
        """Read a verdict on each statement.

        Raises:
            UnreadError: if no line has one, or a number is that of no statement.
        """
        lines = map(_LINE.fullmatch, map(str.rstrip, reply.text.splitlines()))
        said = [(self._number(line), line) for line in lines if line is not None]
        if not said:
            raise UnreadError(absent(reply.text, Status.MISSING))
        if not {number for number, _ in said} <= {*range(1, self.count + 1)}:
            raise UnreadError(Status.WRONG_NUMBERS)
        return [
            _read([line for number, line in said if number == wanted], wanted, reply.judged)
            for wanted in range(1, self.count + 1)
        ]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a verdict on each statement."""
        words = list(WORDS.values())
        given = enumerate(reasons(reason, self.count), start=1)
        lines = (f"{number}: {draw.choice(words)}. {why}" for number, why in given)
        return ExampleReply("", "\n".join(lines))

    def _number(self, line: re.Match[str]) -> int:
        """Return the number of the statement that a line is about; 0 if it does not say."""
        if line["number"] is None:
            return 1 if self.count == 1 else 0
        return int(line["number"])


def _read(
    lines: Sequence[re.Match[str]], number: int, judged: Sequence[str]
) -> Reading[StatementSupport]:
    verdicts: set[Support] = {
        _SAID[" ".join(re.split(r"[ _-]+", line["verdict"].lower()))] for line in lines
    }
    reason = lines[0]["reason"] or "" if lines else ""
    if not verdicts:
        return Reading(Status.MISSING.value, StatementSupport())
    verdict: Support = next(iter(verdicts))
    if len(verdicts) > 1 or (verdict == "supported" and _DENIED.search(reason)):
        return Reading(Status.CONTRADICTORY.value, StatementSupport())
    if holds(judged, [f"{number}: {WORDS[verdict]}"]):
        return Reading(Status.ECHO.value, StatementSupport())
    return Reading(SCORED, StatementSupport(verdict, reason.strip()))
