"""The query of a list's address: its filters, its order and its page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..lake.query.filters import RowTable
from ..lake.query.tables import ListError

NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """The query of an address. `given` has its fields as they are written there."""

    filters: Mapping[str, str | float] = field(default_factory=dict[str, str | float])
    iteration: int | None = None
    sort: str | None = None
    start: int = 0
    given: Mapping[str, str] = field(default_factory=dict[str, str])


def page_query(query: Mapping[str, str], table: RowTable) -> PageQuery:
    """Read the query of an address; fields that the table's list does not know are left out.

    Raises:
        ListError: if a value is not of the right type.
    """
    known = {"iteration", "sort", *table.filters}
    given = {name: query[name].strip() for name in sorted(known & {*query})}
    given = {name: value for name, value in given.items() if value}
    return PageQuery(
        filters={
            name: _value(name, kind, given[name])
            for name, (kind, _) in table.filters.items()
            if name in given
        },
        iteration=number("iteration", given.get("iteration")),
        sort=given.get("sort"),
        start=max(number("start", query.get("start")) or 0, 0),
        given=given,
    )


def _value(name: str, kind: type, text: str) -> str | float:
    """Return the value of a filter."""
    if kind is bool:
        return True
    if kind is int:
        return number(name, text) or 0
    if kind is not float:
        return text
    try:
        return float(text)
    except ValueError:
        raise ListError(f"{name} {text!r} is not a number") from None


def number(name: str, text: str | None) -> int | None:
    """Return a whole number; None for None.

    Raises:
        ListError: if it is something else.
    """
    if text is not None and not NUMBER.fullmatch(text):
        raise ListError(f"{name} {text!r} is not a whole number")
    return None if text is None else int(text)
