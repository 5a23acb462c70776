"""A row of a user's file that records which of its fields were taken, so that others are reported.

Taking a field is `row[name]` or `row.get(name)`; testing its presence is not, nor is `glance`. Rows
made of a row (`without`, `having`) record for it. The objects in a row of JSON are rows, too.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from _collections_abc import dict_items

# Looked up once: a field is taken a dozen times a row.
_init, _item, _get = (
    dict[str, object].__init__,
    dict[str, object].__getitem__,
    dict[str, object].get,
)
_items = dict[str, object].items


class RowError(ValueError):
    """The fault of one row; the reader adds file and place."""


class Row(dict[str, object]):
    """The fields of one row by name."""

    __slots__ = ("_taken",)

    def __init__(
        self,
        fields: Mapping[str, object] | Iterable[tuple[str, object]] = (),
        taken: set[str] | None = None,
    ) -> None:
        """Make a row; the names of fields that are taken from it are added to `taken`."""
        _init(self, fields)
        self._taken = set[str]() if taken is None else taken

    def __getitem__(self, name: str, /) -> object:
        """Take a field.

        Raises:
            KeyError: if the field is missing.
        """
        self._taken.add(name)
        return _item(self, name)

    def get(self, name: str, default: object = None, /) -> object:
        """Take a field that may be absent."""
        if name not in self:
            return default
        self._taken.add(name)
        return _item(self, name)

    def glance(self, name: str) -> object:
        """Look at a field that may be absent, without taking it."""
        return _get(self, name)

    def items(self) -> "dict_items[str, object]":
        """Take all fields."""
        self._taken.update(self)
        return _items(self)

    def without(self, names: Iterable[str]) -> "Row":
        """Return a row without some fields; fields taken from it count as taken from this one."""
        left_out = frozenset(names)
        return Row(((k, v) for k, v in _items(self) if k not in left_out), self._taken)

    def having(self, fields: Mapping[str, object]) -> "Row":
        """Return a row with some fields replaced, which count as taken."""
        self._taken.update(fields)
        return Row({**self, **fields}, self._taken)

    def unused_fields(self) -> Iterator[str]:
        """Yield the names of the non-empty fields that were not taken.

        A field of an object has its name after a dot, the entries of a list are `NAME[]`.
        """
        for name, value in _items(self):
            if name not in self._taken:
                if value is not None and value not in ("", [], {}):
                    yield name
            elif isinstance(value, Row):
                yield from (f"{name}.{inner}" for inner in value.unused_fields())
            elif isinstance(value, list):
                yield from _unused_in(name, cast("list[object]", value))


def _unused_in(name: str, entries: Iterable[object]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, Row):
            unused = set(entry.unused_fields())
            if unused and unused == set(entry):
                yield f"{name}[]"
            else:
                yield from (f"{name}[].{inner}" for inner in unused)


def as_row(fields: Mapping[str, object]) -> Row:
    """Return a row of plain fields, as columns give them, with the objects in them as rows."""
    return Row((name, _note_value(value)) for name, value in fields.items())


def _note_value(value: object) -> object:
    if isinstance(value, dict) and not isinstance(value, Row):
        return as_row(cast("dict[str, object]", value))
    if isinstance(value, list):
        return [_note_value(entry) for entry in cast("list[object]", value)]
    return value


W = TypeVar("W", bound=str)
SURROGATE = re.compile("[\ud800-\udfff]")


def text_of(value: object, name: str) -> str:
    """Return a text that can be stored and shown."""
    if not isinstance(value, str):
        raise RowError(f"{name!r} must be a text, but is {kind_of(value)}")
    if not value.strip():
        raise RowError(f"{name!r} is empty")
    if "\0" in value:
        raise RowError(f"{name!r} holds a NUL character; remove it")
    if SURROGATE.search(value):
        raise RowError(f"{name!r} holds half a character (a lone surrogate); repair the text")
    return value


def show_value(value: object) -> str:
    """Return a value as an error message shows it: the beginning of its JSON."""
    return json.dumps(value, default=str)[:60]


def kind_of(value: object) -> str:
    """Return the type of a JSON value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def optional_text(row: Row, name: str) -> str | None:
    """Return a text that may be absent or null."""
    value = row.get(name)
    return None if value is None else text_of(value, name)


def identity_field(row: Row, name: str) -> str | None:
    """Return an id, or a name, that may be absent: a text, or a whole number."""
    value = row.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return optional_text(row, name)


def list_of(row: Row, name: str) -> list[object]:
    """Return a list that may be absent."""
    value = row.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RowError(f"{name!r} must be a list, but is {kind_of(value)}")
    return cast("list[object]", value)


def one_of(row: Row, name: str, words: Sequence[W]) -> W | None:
    """Return one of some words, or None without it."""
    value = row.get(name)
    found = next((word for word in words if word == value), None)
    if found is None and value is not None:
        raise RowError(f"{name!r} must be one of {', '.join(words)}, but is {show_value(value)}")
    return found
