"""What a list is asked for, as its address says it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from ..lake.query.row_lists import ListError, RowSelection

FIELDS = frozenset(
    {
        *("task", "family", "split", "kind", "rule", "iteration", "aspect", "rating", "unscored"),
        *("min_reward", "max_reward", "flip", "before", "after", "text", "how", "sort"),
    }
)
"""The fields of a filter; `start` is where a page begins."""

NUMBER = re.compile(r"-?[0-9]{1,9}")
T = TypeVar("T", bound=StrEnum)


class How(StrEnum):
    """How a text is looked for."""

    CONTAINS = "contains"
    WORDS = "words"


class Flip(StrEnum):
    """How a prompt's answers went between two iterations."""

    LOST = "lost"
    GAINED = "gained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The filters of a list; None is no filter. `given` is what the address said, to say it again.

    `rows` are those that a row answers by itself; the others choose prompts. `words` is what the
    search index is asked for.
    """

    rows: RowSelection = field(default_factory=RowSelection)
    family: str | None = None
    split: str | None = None
    flip: Flip | None = None
    before: int | None = None
    after: int | None = None
    words: str | None = None
    start: int = 0
    given: Mapping[str, str] = field(default_factory=dict[str, str])


def wanted(query: Mapping[str, str]) -> Wanted:
    """Read the query of an address; fields that a list does not know are left out.

    Raises:
        ListError: if a value cannot be what it should be.
    """
    given = {name: query[name].strip() for name in sorted(FIELDS & {*query})}
    given = {name: value for name, value in given.items() if value}
    how = _one_of(How, "how", given.get("how")) or How.CONTAINS
    text = given.get("text")
    return Wanted(
        rows=RowSelection(
            iteration=number("iteration", given.get("iteration")),
            task=given.get("task"),
            kind=given.get("kind"),
            rule=given.get("rule"),
            aspect=given.get("aspect"),
            rating=number("rating", given.get("rating")),
            min_reward=_real("min_reward", given.get("min_reward")),
            max_reward=_real("max_reward", given.get("max_reward")),
            sort=given.get("sort"),
            unscored="unscored" in given,
            text=text if how is How.CONTAINS else None,
        ),
        family=given.get("family"),
        split=given.get("split"),
        flip=_one_of(Flip, "flip", given.get("flip")),
        before=number("before", given.get("before")),
        after=number("after", given.get("after")),
        words=None if how is How.CONTAINS else text,
        start=max(number("start", query.get("start")) or 0, 0),
        given=given,
    )


def _one_of(kind: type[T], name: str, text: str | None) -> T | None:
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(kind)
        raise ListError(f"{name} {text!r} is not one of: {known}") from None


def number(name: str, text: str | None) -> int | None:
    """Return a whole number, None for none.

    Raises:
        ListError: if it is something else.
    """
    if text is not None and not NUMBER.fullmatch(text):
        raise ListError(f"{name} {text!r} is not a whole number")
    return None if text is None else int(text)


def _real(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise ListError(f"{name} {text!r} is not a number") from None
