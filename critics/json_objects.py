"""JSON objects that begin a line in a judge's reply, as they are written."""

import json
from collections.abc import Iterator
from typing import NamedTuple, cast

LEADING = " \t\r,`*[-"
"""Characters allowed before an object on its line."""
MOST_OBJECTS = 40
"""The limit of objects that are searched, so that reading takes linear time."""


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
    """Give the objects that begin a line; one inside a sentence is a quotation."""
    at = 0
    for _ in range(MOST_OBJECTS):
        start = text.find("{", at)
        if start < 0:
            return
        line = text.rfind("\n", 0, start) + 1
        found = None if text[line:start].strip(LEADING) else decode_object(text, start)
        if found is not None:
            at = found[1]
            yield JsonObject(found[0], start, at)
            continue
        ends = text.find("\n", start)
        at = len(text) if ends < 0 else ends
        if not text[line:start].strip(LEADING):
            yield JsonObject(None, start, at)


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=_distinct, parse_int=str, parse_float=str
)
"""Numbers stay as they are written: no value is rounded into a verdict, and none is too long."""
