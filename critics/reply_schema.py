"""JSON schemas of replies that are one object, for endpoints that keep a reply to a schema.

They are in the strict form that hosted models take: every field is required, none may be added, and
fields come in their order, so that a reason stands ahead of its verdict. Values are listed, as not
every server knows bounds. The mark of a guard (`guard`) is a field of any text: a schema that held
the mark itself would be another one for each question, and servers prepare each schema anew. What
counts is decided by reading: an object with another text there says nothing.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from ..stores.keys import Json
from .guard import MARK_FIELD

ReplySchema = Mapping[str, Json]
"""A JSON schema of one object."""
ANY_TEXT: ReplySchema = {"type": "string"}


def object_of(fields: Mapping[str, ReplySchema]) -> ReplySchema:
    """Return the schema of an object that has these fields, all of them and no others."""
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


def list_of(entry: ReplySchema) -> ReplySchema:
    """Return the schema of a list."""
    return {"type": "array", "items": entry}


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


def marked(schema: ReplySchema) -> ReplySchema:
    """Return the schema of the same object with the mark as its first field."""
    fields = cast("Mapping[str, ReplySchema]", schema["properties"])
    return object_of({MARK_FIELD: ANY_TEXT, **fields})
