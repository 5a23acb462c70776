"""Lists, objects and conversations that a file contains as JSON text, as CSV must.

pandas and `lpfloop export --as csv` write them so. A text that is a conversation is never an
answer: it is parsed, or its row is refused.
"""

import re
from typing import cast

from .conversations import speaker_of
from .file_row import Row
from .json_rows import parsed
from .prompt_context import OTHER_MEDIA
from .text_lines import RowError

LISTED = frozenset(
    {
        *("messages", "conversations", "turns", "history", "checks", *OTHER_MEDIA),
        *("candidates", "completions", "responses", "models", "labels", "scores", "rewards"),
        *("ratings", "comments", "annotations", "metadata", "instruction_id_list", "kwargs"),
        *("correct_answers", "incorrect_answers", "individual_preference"),
        *("chosen_ratings", "rejected_ratings"),
    }
)
"""The fields that hold lists and objects, but no text that could begin like one."""
BEGINS = re.compile(r"""\s*"?\s*\[?\s*\{\s*\\?['"](role|content|from|value)\\?['"]\s*:""")
SPEAKS = re.compile(
    r"""\\?['"](role|from)\\?['"]\s*:\s*\\?['"](system|user|assistant|human|gpt)\\?['"]"""
)


def unpack_cells(row: Row) -> Row:
    """Replace the fields of a row that contain JSON text by the parsed values.

    Raises:
        RowError: for a conversation whose JSON is broken.
    """
    for name in tuple(row):
        value = row.glance(name)
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{", '"'):
            row[name] = _unpacked(name, value)
    return row


def _unpacked(name: str, text: str) -> object:
    """Return a list or conversation parsed from a text; any other text unchanged."""
    speaks = SPEAKS.search(text) is not None
    if not speaks and name.lower() not in LISTED:
        return text
    try:
        value = parsed(text)
    except RowError as error:
        if speaks and BEGINS.match(text):
            told = f"{name!r} holds a conversation that is not valid JSON: {error}"
            raise RowError(told) from error
        return text
    if isinstance(value, str) and BEGINS.match(value):
        raise RowError(f"{name!r} holds a conversation that is written as JSON twice; do it once")
    if name.lower() in LISTED:
        return cast("object", value) if isinstance(value, list | Row) else text
    turns = cast("list[object]", value) if isinstance(value, list) else [value]
    return cast("object", value) if any(map(_is_turn, turns)) else text


def _is_turn(value: object) -> bool:
    if not isinstance(value, Row) or speaker_of(value) is None:
        return False
    return "content" in value or "value" in value
