"""Questions to a judge and the reading of replies, for critiques, comparisons, grades and reviews.

A judge poses a `Question`: messages, and the expected reply. A reply is read into one `Reading` for
each subject of the question. An unreadable part never becomes a value: the status is the reason.
This module does not use engines; requests, retries and storage stay in the loop.

The reply to a guarded question (`guard`) is one JSON object that begins with the question's mark if
the engine can follow a schema; otherwise only the text below the line with the mark counts.
`Expected` has the rules for the counted part, or for the whole reply to a bare question.
"""

import json
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ..stores.records import FinishReason, Message
from .guard import Guard, GuardKey, render, split_at_mark
from .reply_schema import (
    MARK_FIELD,
    ReplySchema,
    draw_value,
    marked_objects,
    outline,
    require_follows,
    texts_in,
    with_mark,
)
from .status import Status, UnreadError

MAX_REPLY = 64 * 1024
"""Longer replies, in characters, are not read."""
CUT = frozenset[FinishReason]({"length", "truncated_thinking"})
"""Finish reasons of replies without an end, cut at the token limit."""
ECHO_LENGTH = 11
"""Shorter lines, in characters, can be in question and reply by chance."""
REFUSALS = (
    "i'm sorry",
    "i am sorry",
    "sorry,",
    "i apologize",
    "i can't",
    "i cannot",
    "i can not",
    "i'm unable",
    "i am unable",
    "i won't",
    "i will not",
    "i refuse",
    "i decline",
    "i must refuse",
    "i must decline",
    "as an ai",
)
_REFUSED = re.compile(
    r"\b(?:can't|cannot|can not|won't|will not|unable to|not able to|not comfortable|refuse to|"
    r"decline to|don't|do not|must not)\b[^.!?\n{]{0,30}?\b(?:rat(?:e|ing)|scor(?:e|ing)|"
    r"judg(?:e|ing)(?! whether)|evaluat(?:e|ing)|assess|grade|compare|choose|decide|give|provide|"
    r"comply|help(?! but)|assist|continue|engage)\b"
    r"(?! (?:it |this |the answer )?(?:a |an |any )?(?:more|higher|full|better|top|perfect|lower))"
)
"""A refusal to judge, unlike "cannot find a fault" or "cannot give more"."""
_SENTENCE_END = re.compile(r"[.!?\n{]")
REASON = "What the judge has to say, in two or three sentences."
"""Why an example of a reply judges as it does."""
OPENING = 400
"""Characters in which a refusal is looked for."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Reading(Generic[T_co]):
    """The reading of one subject; unless it is `scored`, `value` is without ratings."""

    status: str
    value: T_co


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A reply to be read: only `text` counts, the part below the mark if the question has one.

    `before` is the part before the mark, `judged` the texts in the question, unchanged; with `cut`
    the reply ended at the token limit.
    """

    text: str
    before: str = ""
    judged: tuple[str, ...] = ()
    marked: bool = False
    cut: bool = False


class ExampleReply(NamedTuple):
    """A reply in the expected form: the part before the mark, and the part below it."""

    before: str
    below: str


class Expected(ABC, Generic[T]):
    """The expected content and form of a reply."""

    __slots__ = ()

    partly: ClassVar[bool] = False
    """Whether the finished part of a reply that ended at the token limit counts."""
    place: ClassVar[str] = "Begin your reply with the line {mark} by itself."
    """The place of the line with the mark: first, unless reasons come first."""

    @property
    @abstractmethod
    def schema(self) -> ReplySchema:
        """The schema of a reply that is one object, without its mark."""

    @abstractmethod
    def read_object(
        self, document: Mapping[str, Any], judged: Sequence[str]
    ) -> Sequence[Reading[T]]:
        """Read an object that follows the schema; `judged` are the texts that were shown.

        Raises:
            UnreadError: if nothing of it counts.
        """

    def example_object(self, schema: ReplySchema, draw: random.Random, reason: str) -> Any:
        """Return an object that follows the schema, its verdict drawn at random."""
        return draw_value(schema, draw, reason)

    @property
    @abstractmethod
    def nothing(self) -> Sequence[T]:
        """The value of each subject if nothing can be read."""

    @abstractmethod
    def read(self, reply: JudgeReply) -> Sequence[Reading[T]]:
        """Read a reply that is neither empty nor too long, nor an echo.

        Raises:
            UnreadError: if nothing of it counts.
        """

    @abstractmethod
    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a text that can be read, its verdict drawn at random, for the reason given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[T]):
    """The messages to a judge, and the expected reply.

    A reply that repeats one of `own_lines` is an echo. `judged` are the texts in the question,
    whose verdicts do not count as the judge's. With a `mark`, only the text below that line counts.
    With a `schema` the object whose first field is the mark counts.
    """

    messages: tuple[Message, ...]
    expected: Expected[T]
    own_lines: frozenset[str] = frozenset()
    judged: tuple[str, ...] = ()
    mark: str | None = None
    schema: ReplySchema | None = None

    def with_guard(self, guard: Guard, *, short: bool = False) -> "Question[T]":
        """Return the question under a guard; replies of a few tokens, `short`, omit the mark."""
        if short:
            return replace(self, messages=guard.add_rules(self.messages))
        schema = schema_under(guard, self.expected)
        shown = None if schema is None else outline(schema)
        messages = guard.add_rules(self.messages, place=self.expected.place, outline=shown)
        return replace(self, messages=messages, mark=guard.mark, schema=schema)

    def read(self, text: str, finish_reason: FinishReason) -> list[Reading[T]]:
        """Read a reply: one reading for each subject, in their order."""
        cut = finish_reason in CUT
        try:
            _require_readable(text, finish_reason)
            if self.schema is not None:
                return list(self._read_object(text, self.schema, cut=cut))
            return list(self.expected.read(self._split_reply(text, cut=cut)))
        except UnreadError as error:
            return unread(error.status, self.expected)

    def example(self, seed: int, reason: str = REASON) -> str:
        """Return a reply that this question would read, for tests without a judge."""
        draw = random.Random(seed)
        if self.schema is not None:
            found = self.expected.example_object(self.schema, draw, reason)
            return json.dumps(found, ensure_ascii=False)
        parts = self.expected.example(draw, reason)
        lines = (parts.before, self.mark, parts.below)
        return "\n".join(line for line in lines if line)

    def _read_object(self, text: str, schema: ReplySchema, *, cut: bool) -> Sequence[Reading[T]]:
        """Read the object that begins with the mark.

        Raises:
            UnreadError: if the verdict is missing, repeated, or in another form.
        """
        own = [one for one in marked_objects(text) if one.mark == self.mark]
        if not own:
            raise UnreadError(Status.TRUNCATED if cut else absent(text, Status.UNMARKED))
        if refuses(text) or any(map(refuses, texts_in(own[0].value))):
            raise UnreadError(Status.REFUSAL)
        if len(own) > 1:
            raise UnreadError(Status.CONTRADICTORY)
        document = own[0].value
        if document is None:
            raise UnreadError(Status.TRUNCATED if cut else Status.MALFORMED)
        if own[0].behind:
            raise UnreadError(Status.MALFORMED)
        worded = any(len(words) >= ECHO_LENGTH for words in texts_in(document))
        if worded and json.dumps(document, ensure_ascii=False) in self.own_lines:
            raise UnreadError(Status.ECHO)
        require_follows({MARK_FIELD: self.mark, **document}, schema)
        return self.expected.read_object(document, self.judged)

    def _split_reply(self, text: str, *, cut: bool) -> JudgeReply:
        """Return the part of a reply that counts, and the part before it.

        Raises:
            UnreadError: if the judge refuses or repeats, the mark is missing or repeated, or the
                reply was cut and counts only as a whole.
        """
        if cut and not self.expected.partly:
            raise UnreadError(Status.TRUNCATED)
        before, below = "", text
        if self.mark is not None:
            before, *parts = split_at_mark(text, self.mark)
            if not parts:
                raise UnreadError(Status.TRUNCATED if cut else absent(text, Status.UNMARKED))
            if len(parts) > 1:
                raise UnreadError(Status.CONTRADICTORY)
            below = parts[0]
        if refuses(text):
            raise UnreadError(Status.REFUSAL)
        if any(len(line) >= ECHO_LENGTH for line in self.own_lines & lines_of(below)):
            raise UnreadError(Status.ECHO)
        marked = self.mark is not None
        return JudgeReply(text=below, before=before, judged=self.judged, marked=marked, cut=cut)


def build_question(
    template: str,
    texts: Mapping[str, str],
    expected: Expected[T],
    key: GuardKey,
    *,
    values: Mapping[str, str] | None = None,
    own_lines: frozenset[str] = frozenset(),
) -> Question[T]:
    """Return the question that shows texts in a template, guarded by a key.

    `values` are shown as they are.
    """
    judged = tuple(texts.values())
    guard = key.over(judged, [template])
    shown = {name: guard.fence(text) for name, text in texts.items()}
    return Question(
        messages=user_message(render(template, {**(values or {}), **shown})),
        expected=expected,
        own_lines=own_lines,
        judged=judged,
    ).with_guard(guard)


def schema_under(guard: Guard, expected: Expected[T]) -> ReplySchema | None:
    """Return the schema that a reply follows under a guard; None if it is a text."""
    if guard.mark is None or not guard.by_schema:
        return None
    return with_mark(expected.schema, guard.mark)


def unread(status: Status, expected: Expected[T]) -> list[Reading[T]]:
    """Return readings without ratings."""
    return [Reading(status.value, value) for value in expected.nothing]


def absent(text: str, otherwise: Status) -> Status:
    """Return the status of a reply without the expected content: refusal, or `otherwise`."""
    return Status.REFUSAL if _opening(text).startswith(REFUSALS) else otherwise


def refuses(text: str) -> bool:
    """Whether a reply opens with a refusal to judge; the rest is ignored."""
    sentence = _SENTENCE_END.split(_opening(text), maxsplit=1)[0]
    return sentence.startswith(REFUSALS) and _REFUSED.search(sentence) is not None


def _opening(text: str) -> str:
    return text.lstrip()[:OPENING].lower().replace("\u2019", "'")


def lines_of(text: str) -> frozenset[str]:
    """Return the lines of a text without the space around them."""
    return frozenset(line.strip() for line in text.splitlines())


def reasons(first: str, count: int) -> list[str]:
    """Return the reasons of an example about some subjects: the one given, and `REASON`."""
    return [first, *[REASON] * (count - 1)]


def user_message(text: str) -> tuple[Message, ...]:
    """Return the conversation that consists of `text` as the user's message."""
    return (Message(role="user", content=text),)


def _require_readable(text: str, finish_reason: FinishReason) -> None:
    """Raise an error if a reply cannot contain a verdict."""
    cut = finish_reason in CUT
    if finish_reason == "overlong":
        raise UnreadError(Status.OVERLONG)
    if finish_reason == "failed":
        raise UnreadError(Status.FAILED)
    if len(text) > MAX_REPLY:
        raise UnreadError(Status.TOO_LONG)
    if not text.strip():
        raise UnreadError(Status.TRUNCATED if cut else Status.EMPTY)
