"""What an answer cost in tokens: what the endpoint reports of it, as far as that can be.

`usage` is optional in the protocol, and a budget must not depend on it: what is missing or no
number is counted here, and what is more than the request can cost is counted as that.
"""

from collections.abc import Callable
from dataclasses import dataclass

LONGEST_NUMBER = 20
"""How many digits a number may have that is written as a text."""

MISSING = "the endpoint reports no usage: its tokens are counted by lpfloop"
UNREADABLE = "the endpoint reports a usage that is no count of tokens: they are counted by lpfloop"
CAPPED = "the endpoint reports more tokens than a request can cost: only that many are counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of a prompt and its completion, and remarks on how they were reported."""

    prompt: int
    completion: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One of the two numbers of a usage: as reported, at most, and how to count it here."""

    reported: object
    most: int
    own: Callable[[], int]

    @property
    def number(self) -> int | None:
        """Return the number that was reported; None if it is none, or a text cost nothing."""
        said = self.reported
        if isinstance(said, str) and said.isdecimal() and len(said) <= LONGEST_NUMBER:
            said = int(said)
        if isinstance(said, float) and said.is_integer():
            said = int(said)
        if not isinstance(said, int) or said < 0:
            return None
        return said if said or not self.own() else None

    def settled(self) -> tuple[int, str | None]:
        """Return how many tokens count, and a remark if that is not what was reported."""
        number = self.number
        if number is None:
            told = MISSING if self.reported in (None, 0) else UNREADABLE
            return min(self.own(), self.most), told
        return (number, None) if number <= self.most else (self.most, CAPPED)


def settled(prompt: Share, completion: Share) -> Tokens:
    """Return the tokens of an answer."""
    (asked, first), (drawn, second) = prompt.settled(), completion.settled()
    remarks = tuple(dict.fromkeys(told for told in (first, second) if told is not None))
    return Tokens(prompt=asked, completion=drawn, remarks=remarks)
