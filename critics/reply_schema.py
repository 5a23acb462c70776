"""JSON in replies: objects in a text, and replies that are one object, by a schema.

If the engine supports it, sampling follows the schema, so that replies of a judge of any size can
be read. The first field is the mark of a guarded question (`guard`), which the schema fixes. An
endpoint may ignore the schema, so a reply is checked against it before it counts.

The schemas use only features that hosted endpoints accept: fields are required and ordered, a
comment precedes its verdict, and verdicts are listed values. The exception is a schema that lets
the judge choose some of the fields.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ..stores.keys import Json
from .status import Status, UnreadError

ReplySchema = Mapping[str, Json]
"""A JSON schema of one value."""
MARK_FIELD = "verdict_mark"
"""The first field of an object, which holds the mark."""
COMMENT = 160
"""Characters of a comment on one of several subjects."""
COMMENTS = 3 * COMMENT
"""Characters of the comments of a reply together, if there are few."""
MOST_OBJECTS = 40
"""The limit of objects that are looked at, or cannot be read: reading takes linear time."""
_MARKED = re.compile(rf'\{{\s*"{MARK_FIELD}"\s*:\s*"([^"\\\n]{{1,80}})"')
_FENCE = re.compile(r"\s*`*\s*")
LEADING = " \t\r,`*[-"
"""Characters allowed before an object on its line."""
_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "integer": int}


def object_of(fields: Mapping[str, ReplySchema], chosen: int | None = None) -> ReplySchema:
    """Return the schema of an object of these fields: all of them, or `chosen` of them."""
    some = chosen is not None and chosen != len(fields)
    return {
        "type": "object",
        "properties": dict(fields),
        "required": [] if some else list(fields),
        **({"minProperties": chosen, "maxProperties": chosen} if some else {}),
        "additionalProperties": False,
    }


def list_of(entry: ReplySchema, most: int, least: int = 0) -> ReplySchema:
    """Return the schema of a list of `least` to `most` entries."""
    return {"type": "array", "items": entry, "minItems": least, "maxItems": most}


def text(most: int) -> ReplySchema:
    """Return the schema of a text of at most `most` characters."""
    return {"type": "string", "maxLength": most}


def comment(subjects: int = 1) -> ReplySchema:
    """Return the schema of a comment on each of some subjects."""
    return text(max(COMMENT, COMMENTS // subjects))


def one_of(values: Sequence[int | str]) -> ReplySchema:
    """Return the schema of a value that is one of some numbers or words."""
    numbers = [value for value in values if isinstance(value, int)]
    words = [value for value in values if isinstance(value, str)]
    kinds: list[ReplySchema] = []
    if numbers:
        kinds.append({"type": "integer", "enum": numbers})
    if words:
        kinds.append({"type": "string", "enum": words})
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def with_mark(schema: ReplySchema, mark: str) -> ReplySchema:
    """Return the schema of the same object with the mark as its first field."""
    fields = cast("Mapping[str, ReplySchema]", schema["properties"])
    field: ReplySchema = {"type": "string", "const": mark}
    whole = {**schema, "properties": {MARK_FIELD: field, **fields}}
    bounds = {
        bound: cast("int", schema[bound]) + 1
        for bound in ("minProperties", "maxProperties")
        if bound in schema
    }
    return {**whole, **bounds, "required": [MARK_FIELD, *cast("list[str]", schema["required"])]}


def outline(schema: Mapping[str, Any]) -> str:
    """Return the outline of a schema for the judge: `{"reason": TEXT, "score": 1 | 2}`."""
    match schema:
        case {"properties": _}:
            return _object_outline(schema)
        case {"items": entry, "minItems": least, "maxItems": most}:
            counted = f"{most} of these" if least == most else "any number of these"
            return f"[{outline(entry)}, ({counted})]"
        case {"anyOf": kinds}:
            return " | ".join(map(outline, kinds))
        case {"maxLength": most}:
            # Without quotes: a small judge would copy a text that it is shown.
            return f"TEXT (at most {most} characters)"
        case _:
            values = schema.get("enum") or [schema["const"]]
            return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _object_outline(schema: Mapping[str, Any]) -> str:
    named = [
        (json.dumps(name, ensure_ascii=False), outline(each))
        for name, each in schema["properties"].items()
    ]
    if "maxProperties" not in schema:
        return f"{{{', '.join(f'{name}: {each}' for name, each in named)}}}"
    (mark, its), (_, each), *_ = named
    return (
        f'{{{mark}: {its}, "NAME": {each}, ...}}, with the names of the '
        f"{schema['maxProperties'] - 1} that you choose as fields, in the order of the list above"
    )


def require_follows(value: object, schema: Mapping[str, Any]) -> None:
    """Refuse a value that does not follow a schema; texts may exceed its length.

    Raises:
        UnreadError: if it does not.
    """
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if type(value) is _TYPES[kind["type"]]]
        schema = kinds[0] if kinds else schema["anyOf"][0]
    if type(value) is not _TYPES[schema["type"]]:
        raise UnreadError(Status.MALFORMED)
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        raise UnreadError(Status.OUT_OF_RANGE)
    if isinstance(value, list):
        entries = cast("list[object]", value)
        if not schema["minItems"] <= len(entries) <= schema["maxItems"]:
            raise UnreadError(Status.WRONG_NUMBERS)
        for entry in entries:
            require_follows(entry, schema["items"])
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        known = cast("Mapping[str, Mapping[str, Any]]", schema["properties"])
        count = schema.get("minProperties", len(fields))
        if not {*schema["required"]} <= fields.keys() <= known.keys() or len(fields) != count:
            raise UnreadError(Status.WRONG_KEYS)
        for name, each in fields.items():
            require_follows(each, known[name])


class MarkedObject(NamedTuple):
    """An object that begins with a mark; `value` lacks the mark, and is None if it is broken.

    `behind` is the text after it.
    """

    mark: str
    value: dict[str, Any] | None
    behind: str


def marked_objects(reply: str) -> Iterator[MarkedObject]:
    """Give the objects of a reply that begin with a mark, whichever it is."""
    at = 0
    for _ in range(MOST_OBJECTS):
        found = _MARKED.search(reply, at)
        if found is None:
            return
        try:
            value, at = _DECODER.raw_decode(reply, found.start())
        except (ValueError, RecursionError):
            value, at = None, found.end()
        if value is not None:
            del value[MARK_FIELD]
        yield MarkedObject(found[1], value, _FENCE.sub("", reply[at:], count=1))


def is_object(reply: str) -> bool:
    """Whether a stored reply is an object with a mark, and not a text."""
    return _MARKED.search(reply) is not None


def prose(reply: str) -> str:
    """Return an object's reply in the words that a judge would write without a schema.

    These are comments with their ratings and the dictionary of ratings, or a critique and its
    score. Another object is returned without its mark.
    """
    document = next((one.value for one in marked_objects(reply)), None)
    if document is None:
        return reply
    if "critique" in document:
        return f"{document['critique']}\n\nOverall score: {document.get('score')}"
    lines, ratings = list[str](), dict[str, object]()
    for name, each in document.items():
        match each:
            case {"comment": comment, "rating": rating}:
                lines.append(f"{name}: {comment} Score: {rating}")
                ratings[name] = rating
            case _:
                return json.dumps(document, ensure_ascii=False)
    return "\n".join([*lines, "", json.dumps(ratings, ensure_ascii=False)])


def texts_in(value: object) -> Iterator[str]:
    """Give the texts in an object, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, object]", value).values():
            yield from texts_in(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from texts_in(each)


def draw_value(schema: Mapping[str, Any], draw: random.Random, reason: str) -> Any:
    """Return a value that follows a schema, its verdicts drawn at random, for the reason given."""
    match schema:
        case {"const": value}:
            return value
        case {"enum": values}:
            return draw.choice(values)
        case {"anyOf": kinds}:
            return draw_value(kinds[0], draw, reason)
        case {"items": entry, "minItems": least}:
            return [draw_value(entry, draw, reason) for _ in range(max(1, least))]
        case {"properties": fields}:
            count = schema.get("maxProperties", len(fields))
            required = schema["required"]
            spare = [name for name in fields if name not in required]
            names = {*required, *draw.sample(spare, count - len(required))}
            return {n: draw_value(each, draw, reason) for n, each in fields.items() if n in names}
        case _:
            return reason[: schema["maxLength"]]


def distinct_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of these fields.

    Raises:
        ValueError: if a field occurs twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


class JsonObject(NamedTuple):
    """An object and its position; `value` is None if it cannot be read."""

    value: dict[str, object] | None
    start: int
    end: int


def decode_object(text: str, start: int) -> tuple[dict[str, object], int] | None:
    """Return the JSON object at `start` and its end; None if the text there is not an object."""
    try:
        value, end = _AS_WRITTEN.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value), end


def json_objects(text: str) -> Iterator[JsonObject]:
    """Give the objects that begin a line, or follow another; one inside a sentence is a quotation.

    An object that cannot be read ends with its line: it may quote others on the next ones.
    """
    at, line, broken = 0, 0, 0
    while (start := text.find("{", at)) >= 0 and broken < MOST_OBJECTS:
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


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=distinct_fields)
_AS_WRITTEN = json.JSONDecoder(
    strict=False, object_pairs_hook=distinct_fields, parse_int=str, parse_float=str
)
"""Numbers stay as they are written: no value is rounded into a verdict, and none is too long."""
