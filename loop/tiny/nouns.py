"""The common parts of the tiny world's three tasks: verdicts and style.

A demonstration is careful or careless; both have the same length and the same style, so that
neither reveals the answer's quality. A verdict is a perfect critic's judgement of an answer; the
lessons of the feedback model are made from it.
"""

import random
import zlib
from dataclasses import dataclass
from typing import Literal

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
