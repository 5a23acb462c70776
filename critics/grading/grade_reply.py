"""Reading a grader's reply: a rating of each completion, or the reason why there is none.

About several completions a reply is read as a whole: it has one block for each of them, in the
order of their numbers, or nothing of it counts, for then it can not be told which completion a
rating is about. A rating is the number that is written, 8.5 as 8.5 and 1 as 1: nothing is rounded,
scaled or guessed. (UltraFeedback's own reader cut 8.5 at its point, and took a 1 for a share of 10:
see OpenBMB/UltraFeedback, issue 8.)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ...stores.records import SCORED, FinishReason, GradedAspect
from ..critique_reply import refuses, unread
from .graded_aspects import LOWEST, SCALES, Scale
from .labels import FIELD, HEADING, OVERALL

ECHO_LENGTH = 11
"""Shorter lines, in characters, can stand in prompt and reply by chance."""
OPENING = " \t\r*_`[(#"
CLOSING = " \t\r*_`])."
"""What may stand before a value, and behind it."""
NUMBER = re.compile(r"(-?[0-9]{1,4}(?:\.[0-9]{1,4})?)(?:\s*/\s*([0-9]{1,4}))?")
NOT_APPLICABLE = frozenset({"n/a", "na", "not applicable"})
NO_TYPES = frozenset({"none", "n/a"})
TYPE = re.compile(r"0|[1-9][0-9]?")


class Status(StrEnum):
    """Why a completion has a rating (`scored`), or has none.

    Reasons that keep a reply from being looked at are those of `critics.reply`.
    """

    SCORED = SCORED
    """The rating was read."""
    NOT_APPLICABLE = "not_applicable"
    """The grader says that the aspect does not apply to this completion, where that is offered."""
    ECHO = "echo"
    """The reply repeats the prompt."""
    REFUSAL = "refusal"
    """The reply holds no rating and opens as refusals do."""
    MISSING = "missing"
    """The reply holds no block on any completion, or no overall score."""
    DUPLICATE = "duplicate"
    """Something stands there twice: a completion's block, a field of it, the overall score."""
    WRONG_NUMBERS = "wrong_numbers"
    """The blocks are not those of all completions, in their order."""
    INCOMPLETE = "incomplete"
    """What was asked for lacks: a rating, its rationale, the types, the critique in words."""
    MALFORMED = "malformed"
    """A rating, or a list of types, is not in the form that was asked for."""
    OUT_OF_RANGE = "out_of_range"
    """A rating, or a type, is none that the scale has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a reply must hold: ratings of `count` completions in one aspect.

    `own_lines` are the lines of the question that are the template's.
    """

    aspect: GradedAspect
    count: int
    own_lines: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a reply says of one completion; `status` is `scored`, or why `rating` is None."""

    rating: float | None = None
    rationale: str = ""
    types: tuple[str, ...] = ()
    type_rationale: str = ""
    status: str


@dataclass(frozen=True, slots=True)
class _Block:
    """The fields of one block, and the names of those that stand there twice."""

    number: int
    fields: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    twice: set[str] = field(default_factory=set[str])

    def text(self, name: str) -> str:
        return "\n".join(self.fields.get(name, ())).strip()


class _UnreadError(ValueError):
    """The reply says nothing that counts."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status


def read(text: str, finish_reason: FinishReason, expected: Expected) -> list[Verdict]:
    """Read a reply: a verdict on each completion, in the order in which they were shown."""
    hopeless = unread(text, finish_reason)
    if hopeless is not None:
        return [Verdict(status=hopeless.value)] * expected.count
    try:
        return _read(text, expected)
    except _UnreadError as error:
        return [Verdict(status=error.status.value)] * expected.count


def _read(text: str, expected: Expected) -> list[Verdict]:
    lines = text.split("\n")
    if any(len(s) >= ECHO_LENGTH and s in expected.own_lines for s in map(str.strip, lines)):
        raise _UnreadError(Status.ECHO)
    scale = SCALES[expected.aspect]
    if expected.aspect == "overall":
        return [_overall(lines, scale)]
    blocks = _blocks(lines)
    if not blocks:
        raise _UnreadError(Status.REFUSAL if refuses(text) else Status.MISSING)
    numbers = [block.number for block in blocks]
    if len(set(numbers)) < len(numbers):
        raise _UnreadError(Status.DUPLICATE)
    if numbers != list(range(1, expected.count + 1)):
        raise _UnreadError(Status.WRONG_NUMBERS)
    return [_verdict(block, scale) for block in blocks]


def _blocks(lines: Sequence[str]) -> list[_Block]:
    """Return the blocks of a reply; what stands before the first one belongs to none."""
    blocks: list[_Block] = []
    name = ""
    for line in lines:
        if heading := HEADING.fullmatch(line):
            blocks.append(_Block(int(heading[1])))
            name = ""
        elif blocks and (begun := FIELD.fullmatch(line)):
            name = " ".join(begun[1].lower().split())
            if name in blocks[-1].fields:
                blocks[-1].twice.add(name)
            blocks[-1].fields[name] = [begun[2]]
        elif blocks and name:
            blocks[-1].fields[name].append(line)
    return blocks


def _verdict(block: _Block, scale: Scale) -> Verdict:
    if block.twice:
        raise _UnreadError(Status.DUPLICATE)
    said, rationale = block.fields.get("rating", [""])[0], block.text("rationale")
    if not (said.strip() and rationale):
        raise _UnreadError(Status.INCOMPLETE)
    types = _types(block.fields.get("type", [""])[0], scale.types) if scale.types else ()
    rating = _rating(said, scale)
    return Verdict(
        rating=rating,
        rationale=rationale,
        types=types,
        type_rationale=block.text("type rationale"),
        status=(Status.SCORED if rating is not None else Status.NOT_APPLICABLE).value,
    )


def _rating(text: str, scale: Scale) -> float | None:
    """Return the number that is written; None for N/A, where that is offered."""
    words = _bare(text)
    if scale.may_not_apply and words.lower() in NOT_APPLICABLE:
        return None
    found = NUMBER.fullmatch(words)
    if found is None or found[2] not in (None, str(scale.best)):
        raise _UnreadError(Status.MALFORMED)
    rating = float(found[1])
    if not LOWEST <= rating <= scale.best:
        raise _UnreadError(Status.OUT_OF_RANGE)
    return rating


def _bare(text: str) -> str:
    """Return a value without what may stand around it; .5 keeps its point."""
    return text.lstrip(OPENING).rstrip(CLOSING)


def _types(text: str, most: int) -> tuple[str, ...]:
    """Return the numbers of a list such as `1, 3`; none for `None`."""
    words = _bare(text)
    if not words:
        raise _UnreadError(Status.INCOMPLETE)
    if words.lower() in NO_TYPES:
        return ()
    named = [word.strip() for word in words.split(",")]
    if not all(TYPE.fullmatch(name) for name in named):
        raise _UnreadError(Status.MALFORMED)
    if not all(1 <= int(name) <= most for name in named):
        raise _UnreadError(Status.OUT_OF_RANGE)
    if len(set(named)) < len(named):
        raise _UnreadError(Status.DUPLICATE)
    return tuple(named)


def _overall(lines: Sequence[str], scale: Scale) -> Verdict:
    """Read a critique in words, and the one line with its overall score."""
    scores = [found[1] for line in lines if (found := OVERALL.fullmatch(line))]
    if not scores:
        whole = "\n".join(lines)
        raise _UnreadError(Status.REFUSAL if refuses(whole) else Status.MISSING)
    if len(scores) > 1:
        raise _UnreadError(Status.DUPLICATE)
    critique = "\n".join(line for line in lines if not OVERALL.fullmatch(line)).strip()
    if not (critique and scores[0].strip()):
        raise _UnreadError(Status.INCOMPLETE)
    return Verdict(rating=_rating(scores[0], scale), rationale=critique, status=Status.SCORED.value)
