"""Reading a reply that breaks a passage into statements: a list of lines, or NONE.

A list counts as a whole. One that is cut, that has more statements than the passage has words, or
with one longer than any sentence is not read: it says something else than the passage.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...stores.records import SCORED
from ..judge import ExampleReply, Expected, HeardReply, Reading, absent
from ..reply_schema import ReplySchema, list_of, object_of, text
from ..status import Status, UnreadError

Statements = tuple[str, ...]
NOTHING, STATEMENTS = "none", "statements"
LONGEST = 600
"""Characters of a statement."""
FEWEST = 8
"""Statements that a passage may have, however few its words are."""
WORDS_A_STATEMENT = 4
"""About so many words make a statement (26 statements of an answer of 110 tokens)."""
_ITEM = re.compile(r"[ \t>]*(?:[-*\u2022\u2013]|[0-9]{1,3}[.)])[ \t]+(.+)")


@dataclass(frozen=True, slots=True)
class StatementList(Expected[Statements]):
    """What a reply must hold: the statements of a passage of so many words."""

    words: int

    @property
    def schema(self) -> ReplySchema:
        """The schema of the list of the statements."""
        return object_of({STATEMENTS: list_of(text(LONGEST), max(FEWEST, self.words))})

    def read_object(
        self, said: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[Statements]]:
        """Read the list."""
        del judged
        stated = (one.strip() for one in said[STATEMENTS])
        return [Reading(SCORED, tuple(dict.fromkeys(filter(None, stated))))]

    @property
    def nothing(self) -> tuple[Statements]:
        """No statement."""
        return ((),)

    def read(self, reply: HeardReply) -> list[Reading[Statements]]:
        """Read the list.

        Raises:
            UnreadError: if there is none, or none of this passage.
        """
        lines = map(str.rstrip, reply.text.splitlines())
        items = [found[1] for line in lines if (found := _ITEM.fullmatch(line))]
        if not items and _says_none(reply.text):
            return [Reading(SCORED, ())]
        if not items:
            raise UnreadError(absent(reply.text, Status.MISSING))
        if all(map(_says_none, items)):
            return [Reading(SCORED, ())]
        if any(map(_says_none, items)):
            raise UnreadError(Status.CONTRADICTORY)
        most = max(FEWEST, self.words)
        if len(items) > most or any(len(item) > LONGEST for item in items):
            raise UnreadError(Status.MALFORMED)
        return [Reading(SCORED, tuple(dict.fromkeys(items)))]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return about as many statements as a passage of this length has."""
        del reason
        count = max(1, round(self.words / WORDS_A_STATEMENT))
        first = draw.randrange(1000)
        lines = (f"- This is statement {first + number}." for number in range(count))
        return ExampleReply("", "\n".join(lines))


def _says_none(text: str) -> bool:
    return text.strip(" \t\r\n.*_`-").casefold() == NOTHING
