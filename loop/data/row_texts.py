"""The texts in a user's rows: storable and showable ones, or the reason why they are not."""

import json
import re
from collections.abc import Sequence
from typing import TypeVar

from .file_row import Row
from .text_lines import RowError

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


def one_of(row: Row, name: str, words: Sequence[W]) -> W | None:
    """Return one of some words, or None without it."""
    value = row.get(name)
    found = next((word for word in words if word == value), None)
    if found is None and value is not None:
        raise RowError(f"{name!r} must be one of {', '.join(words)}, but is {show_value(value)}")
    return found
