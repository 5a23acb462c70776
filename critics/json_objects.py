"""The JSON objects of a judge's reply, as they are written."""

import json
from collections.abc import Iterator
from typing import NamedTuple, cast

from .reply_schema import distinct_fields

LEADING = " \t\r,`*[-"
"""Characters allowed before an object on its line."""
MOST_BROKEN = 40
"""The limit of objects that cannot be read, so that reading takes linear time."""


class JsonObject(NamedTuple):
    """An object and its position; `value` is None if it cannot be read."""

    value: dict[str, object] | None
    start: int
    end: int


def decode_object(text: str, start: int) -> tuple[dict[str, object], int] | None:
    """Return the JSON object at `start` and its end; None if the text there is not an object."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value), end


def json_objects(text: str) -> Iterator[JsonObject]:
    """Give the objects that begin a line, or follow another; one inside a sentence is a quotation.

    An object that cannot be read ends with its line: it may quote others on the next ones.
    """
    at, line, broken = 0, 0, 0
    while (start := text.find("{", at)) >= 0 and broken < MOST_BROKEN:
        line = max(line, text.rfind("\n", at, start) + 1)
        opens = not text[line:start].strip(LEADING)
        found = decode_object(text, start) if opens else None
        if found is not None:
            at = line = found[1]
            yield JsonObject(found[0], start, at)
            continue
        at = line = text.find("\n", start) + 1 or len(text)
        if opens:
            broken += 1
            yield JsonObject(None, start, at)


_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=distinct_fields, parse_int=str, parse_float=str
)
"""Numbers stay as they are written: no value is rounded into a verdict, and none is too long."""
