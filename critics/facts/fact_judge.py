"""The questions to a judge about facts, and the reading of its replies.

A passage is broken into statements: a list of lines, or NONE. A list is read as a whole or not at
all. It is unread if it is cut, has more statements than the passage has words, or has a statement
longer than any sentence: then it does not restate the passage.

The second question is whether the reference supports each statement. A line with a number, a colon
and a verdict counts; about a single statement the number may be missing. Each statement is read
separately, but an unknown number makes the whole reply unread, because the statements of its
verdicts are uncertain.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...configs.judging import FactsConfig
from ...stores.keys import digest
from ...stores.records import SCORED, Prompt, Support
from ..guard import BARE, GuardKey, TemplateSets, fixed_lines, render
from ..judge import (
    ExampleReply,
    Expected,
    JudgeReply,
    Question,
    Reading,
    absent,
    build_question,
    reasons,
    user_message,
)
from ..quoting import holds
from ..reply_schema import ReplySchema, comment, list_of, object_of, one_of, text
from ..status import Status, UnreadError

STATEMENTS, SUPPORT = "statements", "support"
FACT_TEMPLATES = TemplateSets(
    folder=Path(__file__).parent / "templates",
    files={
        STATEMENTS: (frozenset({"instruction", "passage"}), frozenset()),
        SUPPORT: (frozenset({"instruction", "reference", "statements"}), frozenset({"count"})),
    },
    fallback="factscore",
)
Statements = tuple[str, ...]
NOTHING = "none"
LONGEST = 600
"""Characters of a statement."""
FEWEST = 8
"""Statements that a passage may have, however few its words are."""
WORDS_A_STATEMENT = 4
"""The approximate words per statement (26 statements of an answer of 110 tokens)."""
_ITEM = re.compile(r"[ \t>]*(?:[-*\u2022\u2013]|[0-9]{1,3}[.)])[ \t]+(.+)")
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
    """The reference's support of a statement, and the reason."""

    verdict: Support | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactJudge:
    """The templates of the two questions."""

    templates: Mapping[str, str]

    @classmethod
    def from_config(cls, config: FactsConfig) -> Self:
        """Load the templates that `config` names.

        Raises:
            ConfigError: if they cannot be used.
        """
        return cls(templates=FACT_TEMPLATES.load(config.templates))

    def digest(self, name: str) -> str:
        """Return the hash of the template of a question."""
        return digest(self.templates[name])

    def ask_statements(
        self, prompt: Prompt, passage: str, key: GuardKey = BARE
    ) -> Question[Statements]:
        """Return the question for the statements of a passage of an answer to `prompt`."""
        template, expected = self.templates[STATEMENTS], StatementList(len(passage.split()))
        texts = {"instruction": prompt.instruction, "passage": passage}
        return build_question(template, texts, expected, key, own_lines=fixed_lines(template))

    def ask_support(
        self, prompt: Prompt, statements: Sequence[str], key: GuardKey = BARE
    ) -> Question[StatementSupport]:
        """Return the question which of the statements the reference of `prompt` supports."""
        template = self.templates[SUPPORT]
        judged = (*statements, prompt.instruction, prompt.reference or "")
        guard = key.over(judged, [template])
        numbered = enumerate(map(guard.fence, statements), start=1)
        values = {
            "instruction": guard.fence(prompt.instruction),
            "reference": guard.fence(prompt.reference or ""),
            "statements": "\n".join(f"Statement {n}: {shown}" for n, shown in numbered),
            "count": str(len(statements)),
        }
        return Question(
            messages=user_message(render(template, values)),
            expected=SupportVerdicts(len(statements)),
            own_lines=fixed_lines(template),
            judged=judged,
        ).with_guard(guard)


@dataclass(frozen=True, slots=True)
class StatementList(Expected[Statements]):
    """The expected reply: the statements of a passage of `words` words."""

    words: int

    @property
    def schema(self) -> ReplySchema:
        """The schema of the list of the statements."""
        return object_of({STATEMENTS: list_of(text(LONGEST), max(FEWEST, self.words))})

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[Statements]]:
        """Read the list."""
        del judged
        stated = (one.strip() for one in document[STATEMENTS])
        return [Reading(SCORED, tuple(dict.fromkeys(filter(None, stated))))]

    @property
    def nothing(self) -> tuple[Statements]:
        """No statement."""
        return ((),)

    def read(self, reply: JudgeReply) -> list[Reading[Statements]]:
        """Read the list.

        Raises:
            UnreadError: if it is missing, or cannot be of this passage.
        """
        lines = map(str.rstrip, reply.text.splitlines())
        items = [found[1] for line in lines if (found := _ITEM.fullmatch(line))]
        if not items and not _says_none(reply.text):
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


@dataclass(frozen=True, slots=True)
class SupportVerdicts(Expected[StatementSupport]):
    """The expected reply: a verdict on each of `count` statements."""

    count: int

    @property
    def schema(self) -> ReplySchema:
        """The schema of a list with the verdict on each statement, in their order."""
        verdict = {"reason": comment(self.count), "verdict": one_of([*WORDS.values()])}
        return object_of({VERDICTS: list_of(object_of(verdict), self.count, self.count)})

    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> list[Reading[StatementSupport]]:
        """Read a verdict on each statement; one that a judged text gives is an echo."""
        return [
            Reading(Status.ECHO.value, StatementSupport())
            if holds(judged, [f"{number}: {one['verdict']}"])
            or holds(judged, [f"verdict: {one['verdict']}"])
            else Reading(SCORED, StatementSupport(_SAID[one["verdict"]], one["reason"].strip()))
            for number, one in enumerate(document[VERDICTS], start=1)
        ]

    @property
    def nothing(self) -> tuple[StatementSupport, ...]:
        """No verdict on any statement."""
        return (StatementSupport(),) * self.count

    def read(self, reply: JudgeReply) -> list[Reading[StatementSupport]]:
        """Read a verdict on each statement.

        Raises:
            UnreadError: without a line with a verdict, or with an unknown number.
        """
        lines = map(_LINE.fullmatch, map(str.rstrip, reply.text.splitlines()))
        # A line without a number is about the only statement; 0 is the number of none.
        unnamed = 1 if self.count == 1 else 0
        numbered = [(int(line["number"] or unnamed), line) for line in lines if line is not None]
        if not numbered:
            raise UnreadError(absent(reply.text, Status.MISSING))
        if not {number for number, _ in numbered} <= {*range(1, self.count + 1)}:
            raise UnreadError(Status.WRONG_NUMBERS)
        return [
            _read([line for number, line in numbered if number == place], place, reply.judged)
            for place in range(1, self.count + 1)
        ]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a verdict on each statement."""
        words = list(WORDS.values())
        given = enumerate(reasons(reason, self.count), start=1)
        lines = (f"{number}: {draw.choice(words)}. {why}" for number, why in given)
        return ExampleReply("", "\n".join(lines))


def _says_none(text: str) -> bool:
    return text.strip(" \t\r\n.*_`-").casefold() == NOTHING


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
