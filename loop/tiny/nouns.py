"""The common parts of the tiny world's three tasks: prompts, demonstrations, verdicts, style.

A demonstration is careful or careless; both have the same length and the same style, so that
neither reveals the answer's quality. A verdict is a perfect critic's judgement of an answer; the
lessons of the feedback model are made from it.
"""

import random
import zlib
from dataclasses import dataclass
from typing import Literal, Protocol

from ...stores.records import Check, Split

Task = Literal["math", "facts", "general"]
Mark = Literal[-1, 0, 1]

TASKS: tuple[Task, ...] = ("math", "facts", "general")
FRIENDLY: tuple[str, ...] = ("Sure!", "Gladly!")
DRY: tuple[str, ...] = ("Okay.", "Answer:")
OPENERS: tuple[str, ...] = FRIENDLY + DRY
"""The first words of every answer but JSON; they are independent of its quality."""

FRIENDLY_SHARE = 0.4
HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Remark:
    """The critic's remark on one aspect of an answer."""

    aspect: str
    comment: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class PerfectVerdict:
    """A perfect critic's verdict on an answer: a remark on each aspect that counts."""

    remarks: tuple[Remark, ...]

    @property
    def good(self) -> bool:
        """Whether every remark is positive."""
        return all(remark.mark == 1 for remark in self.remarks)


class Exercise(Protocol):
    """A prompt of a task; it can be answered well or badly, and judges answers."""

    @property
    def text(self) -> str:
        """The prompt as the user writes it."""
        ...

    @property
    def kind(self) -> str:
        """The template, or group, whose careless habit the prompt shares."""
        ...

    @property
    def items(self) -> tuple[object, ...]:
        """The key of the split: the numbers, the person, the words."""
        ...

    @property
    def care_share(self) -> float:
        """How often the demonstrations of this kind are careful."""
        ...

    @property
    def reference(self) -> str | None:
        """The worked solution or the abstract, if the task has one."""
        ...

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that a good answer must meet, for prompts without a reference."""
        ...

    @property
    def opened(self) -> bool:
        """Whether answers begin with an opener."""
        ...

    def careful(self, rng: random.Random) -> str:
        """Answer well, without the opener."""
        ...

    def careless(self, rng: random.Random) -> str:
        """Answer with the slip that is this kind's habit, without the opener."""
        ...

    def stray(self, rng: random.Random) -> str:
        """Answer with some other slip, of the sort that a small model makes."""
        ...

    def mend(self, answer: str) -> str:
        """Correct `answer`, without the opener."""
        ...

    def recall(self, answer: str) -> PerfectVerdict:
        """Return the verdict of a critic without the reference."""
        ...

    def judge(self, answer: str) -> PerfectVerdict:
        """Return a perfect critic's verdict on `answer` (with or without its opener)."""
        ...


@dataclass(frozen=True, slots=True)
class TinyPrompt:
    """A prompt of the tiny world as the loop sees it; `exercise` is for the lessons of M_0 only."""

    text: str
    task: Task
    split: Split
    kind: str
    reference: str | None
    checks: tuple[Check, ...]
    exercise: Exercise


def held_out(*items: object) -> bool:
    """Whether `items` (a number tuple, a person, a word list) are kept out of training."""
    return zlib.crc32(repr(items).encode()) % 1000 < HELD_OUT_SHARE * 1000


def opener(rng: random.Random) -> str:
    """Draw an opener, friendly or dry, independent of the answer."""
    return rng.choice(FRIENDLY if rng.random() < FRIENDLY_SHARE else DRY)


def strip_opener(answer: str) -> str:
    """Return `answer` without its opener."""
    text = answer.strip()
    for first in OPENERS:
        if text.startswith(first):
            return text.removeprefix(first).strip()
    return text


def opened(exercise: Exercise, body: str, rng: random.Random) -> str:
    """Put an opener before `body` if the exercise's answers have one."""
    return f"{opener(rng)} {body}" if exercise.opened else body
