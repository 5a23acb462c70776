"""Asking a judge and reading its reply: what critiques, comparisons, grades and reviews share.

A judge poses a `Question`: messages, and what is expected of the reply. A reply is read into one
`Reading` for each subject of the question. What cannot be read is never a value: the status is the
reason. No judge knows an engine; asking, retrying and storing stay in the loop.

The reply to a guarded question (`guard`) counts below the line with its mark alone, or in the
object that begins with it. What is `Expected` has the rules for what counts there, or in the whole
reply to a bare question.
"""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Generic, NamedTuple, TypeVar

from ..stores.records import SCORED, FinishReason, Message
from .guard import Guard, parted, parted_objects, with_mark
from .reply_schema import ReplySchema, marked

MAX_REPLY = 64 * 1024
"""Longer replies, in characters, are not read."""
CUT = frozenset[FinishReason]({"length", "truncated_thinking"})
"""How a reply ends that has no end: that is cut at the token limit."""
ECHO_LENGTH = 11
"""Shorter lines, in characters, can stand in question and reply by chance."""
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
"""A refusal to judge: who cannot find a fault, or give more than this, does not refuse."""
_SENTENCE_END = re.compile(r"[.!?\n{]")
REASON = "What the judge has to say, in two or three sentences."
"""Why an example of a reply judges as it does."""
OPENING = 400
"""Characters in which a refusal is looked for."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Status(StrEnum):
    """Why a subject has the value that was asked for (`scored`), or has none."""

    SCORED = SCORED
    """All that was asked for was read."""
    NOT_APPLICABLE = "not_applicable"
    """The judge says that the aspect does not apply here, where that is offered."""
    EMPTY = "empty"
    """The reply holds nothing but white space."""
    OVERLONG = "overlong"
    """The question did not fit into the judge's context, so nothing was asked."""
    FAILED = "failed"
    """The judge broke down on this one: an engine gave it up, a comparison lacked memory."""
    TRUNCATED_THINKING = "truncated_thinking"
    """What was to be judged was cut inside its thought, so nothing was asked."""
    TRUNCATED = "truncated"
    """The reply ended at the token limit before what counts, or may have; with no attempt, what was
    to be judged did, and nothing was asked."""
    TOO_LONG = "too_long"
    """The reply is longer than `MAX_REPLY`."""
    REFUSAL = "refusal"
    """The reply holds nothing that was asked for and opens as refusals do."""
    ECHO = "echo"
    """The reply repeats the question, or its verdict stands in a text that is judged."""
    UNMARKED = "unmarked"
    """The question was guarded, and the reply lacks the line below which a verdict counts."""
    MISSING = "missing"
    """The reply makes no statement on this subject."""
    MALFORMED = "malformed"
    """What is stated is not in the form that was asked for."""
    OUT_OF_RANGE = "out_of_range"
    """What is stated is none of the values that were offered."""
    NO_DICTIONARY = "no_dictionary"
    """The reply has no dictionary of ratings."""
    QUOTED = "quoted"
    """The statement stands inside a sentence, or is said to be somebody else's."""
    NEGATED = "negated"
    """The statement is what the judge says that it does not state."""
    DUPLICATE_KEYS = "duplicate_keys"
    """An aspect is rated twice."""
    WRONG_KEYS = "wrong_keys"
    """The keys are not the aspects that were asked for."""
    NOT_INTEGER = "not_integer"
    """A rating is a text, a fraction, a truth value or null, or is written with a plus sign."""
    NO_CLASS = "no_class"
    """The reply has ratings, but names no class of the taxonomy, or several."""
    SHIFTED = "shifted"
    """The numbers in the reply are not those of the pairs, but off by a constant."""
    NO_CHOICE = "no_choice"
    """The statement prefers neither, which was not offered."""
    CONTRADICTORY = "contradictory"
    """There are several statements on this subject, or several marks, and they differ."""
    DUPLICATE = "duplicate"
    """Something stands there twice: a completion's block, a field of it, the overall score."""
    WRONG_NUMBERS = "wrong_numbers"
    """The blocks are not those of all completions, in their order."""
    INCOMPLETE = "incomplete"
    """Part of a grade is absent: its rating, its rationale, its types, the critique in words."""
    NO_CHECK = "no_check"
    """The verifier has nothing to verify for this prompt."""
    NO_JUDGE = "no_judge"
    """The verifier does not judge facts, whose statements a judge compares with the reference."""
    NO_REFERENCE = "no_reference"
    """There is no reference that a statement could be compared with."""
    UNREADABLE = "unreadable"
    """The verifier finds no final answer in the reference."""
    TIMEOUT = "timeout"
    """The verifier's comparison took too long."""
    TOO_LARGE = "too_large"
    """The answer's formula is larger than any that the verifier compares."""


WAS_READ = frozenset({Status.SCORED.value, Status.NOT_APPLICABLE.value})
"""The statuses of what need not be asked again."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T_co]):
    """What is read about one subject; unless it is `scored`, `value` rates nothing."""

    status: str
    value: T_co


class UnreadError(ValueError):
    """A reply, or a part of it, says nothing that counts."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardReply:
    """A reply to be read: the verdict counts in `text`, below the mark if the question has one.

    `before` is what was said ahead of the mark, `judged` the texts that were shown, as they are;
    `cut` says that the reply ended at the token limit.
    """

    text: str
    before: str = ""
    judged: tuple[str, ...] = ()
    marked: bool = False
    cut: bool = False


class ExampleReply(NamedTuple):
    """A reply in the form that is asked for: what stands ahead of the mark, and what below it."""

    before: str
    below: str


class Expected(ABC, Generic[T]):
    """What a reply must hold, and in which form."""

    __slots__ = ()
    partly: ClassVar[bool] = False
    """Whether a reply that ended at the token limit counts as far as it goes."""

    @property
    def place(self) -> str:
        """Where the line with the mark goes: ahead of all, unless reasons come first."""
        return "Begin your reply with the line {mark} by itself."

    @property
    def schema(self) -> ReplySchema | None:
        """The schema of a reply that is one object; None for a reply in words."""
        return None

    @property
    def shape(self) -> str:
        """What a judge is told where `as_object` changes its reply; nothing where it does not."""
        return ""

    def as_object(self, reply: str) -> str:
        """Return a reply in the form that is asked for as the one object that the schema is of."""
        return reply

    @property
    @abstractmethod
    def nothing(self) -> Sequence[T]:
        """The value of each subject where nothing can be read."""

    @abstractmethod
    def read(self, reply: HeardReply) -> Sequence[Reading[T]]:
        """Read a reply that is neither empty nor too long, nor an echo.

        Raises:
            UnreadError: if nothing of it counts.
        """

    @abstractmethod
    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a reply that can be read, its verdict drawn at random, for the reason given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[T]):
    """What to send to a judge, and what its reply must hold.

    A reply that repeats one of `own_lines` is an echo. `judged` are the texts that are shown, whose
    verdicts are none of the judge's. With a `mark`, what stands below that line counts. With a
    `schema` the reply is one object, whose first field is the mark: that object counts.
    """

    messages: tuple[Message, ...]
    expected: Expected[T]
    own_lines: frozenset[str] = frozenset()
    judged: tuple[str, ...] = ()
    mark: str | None = None
    schema: ReplySchema | None = None

    def guarded(self, guard: Guard, *, short: bool = False) -> "Question[T]":
        """Return the question under a guard; replies of a few tokens, `short`, have no mark."""
        schema = schema_under(guard, self.expected, short=short)
        if schema is not None:
            messages = guard.told_of_object(self.messages, self.expected.shape)
            return replace(self, messages=messages, mark=guard.mark, schema=schema)
        place = None if short else self.expected.place
        messages = guard.told(self.messages, place)
        return replace(self, messages=messages, mark=None if short else guard.mark)

    def read(self, text: str, finish_reason: FinishReason) -> list[Reading[T]]:
        """Read a reply: one reading for each subject, in their order."""
        try:
            _require_readable(text, finish_reason, self.expected)
            return list(self.expected.read(self._heard(text, cut=finish_reason in CUT)))
        except UnreadError as error:
            return unread(error.status, self.expected)

    def example(self, seed: int, reason: str = REASON) -> str:
        """Return a reply that this question would read, for a judge that is not asked."""
        parts = self.expected.example(random.Random(seed), reason)
        if self.schema is not None:
            return reply_object(self.expected, parts.below, self.mark)
        lines = (parts.before, self.mark, parts.below)
        return "\n".join(line for line in lines if line)

    def _heard(self, text: str, *, cut: bool) -> HeardReply:
        """Return what of a reply counts, with what was said ahead of it.

        Raises:
            UnreadError: if the judge refuses or repeats, or the mark is missing or there twice.
        """
        before, below = self._parted(text, cut=cut)
        if refuses(text):
            raise UnreadError(Status.REFUSAL)
        if any(len(line) >= ECHO_LENGTH for line in self.own_lines & lines_of(below)):
            raise UnreadError(Status.ECHO)
        marked = self.mark is not None
        return HeardReply(text=below, before=before, judged=self.judged, marked=marked, cut=cut)

    def _parted(self, text: str, *, cut: bool) -> tuple[str, str]:
        """Return what stands ahead of the mark, and what counts."""
        if self.mark is None:
            return "", text
        part = parted if self.schema is None else parted_objects
        before, *below = part(text, self.mark)
        if not below:
            raise UnreadError(Status.TRUNCATED if cut else absent(text, Status.UNMARKED))
        if len(below) > 1:
            raise UnreadError(Status.CONTRADICTORY)
        return before, below[0]


def schema_under(guard: Guard, expected: Expected[T], *, short: bool = False) -> ReplySchema | None:
    """Return the schema that a reply is kept to under a guard; None if it is kept to none.

    Replies of a few tokens, `short`, have no room for an object.
    """
    schema = expected.schema if guard.by_schema and not short else None
    return schema if schema is None or guard.mark is None else marked(schema)


def reply_object(expected: Expected[T], reply: str, mark: str | None) -> str:
    """Return a reply in the form that is asked for as the object that a schema is of."""
    whole = expected.as_object(reply)
    return whole if mark is None else with_mark(whole, mark)


def unread(status: Status, expected: Expected[T]) -> list[Reading[T]]:
    """Return readings without ratings."""
    return [Reading(status.value, value) for value in expected.nothing]


def absent(text: str, otherwise: Status) -> Status:
    """Return why a reply has nothing of what was asked for: it is a refusal, or `otherwise`."""
    return Status.REFUSAL if _opening(text).startswith(REFUSALS) else otherwise


def refuses(text: str) -> bool:
    """Whether a reply opens with a refusal to judge, whatever follows."""
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
    """Return the conversation that has nothing but `text`."""
    return (Message(role="user", content=text),)


def _require_readable(text: str, finish_reason: FinishReason, expected: Expected[T]) -> None:
    """Refuse a reply in which nothing is to be looked for."""
    cut = finish_reason in CUT
    if finish_reason == "overlong":
        raise UnreadError(Status.OVERLONG)
    if finish_reason == "failed":
        raise UnreadError(Status.FAILED)
    if cut and not expected.partly:
        raise UnreadError(Status.TRUNCATED)
    if len(text) > MAX_REPLY:
        raise UnreadError(Status.TOO_LONG)
    if not text.strip():
        raise UnreadError(Status.TRUNCATED if cut else Status.EMPTY)
