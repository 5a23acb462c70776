"""One row of a prompts file becomes a prompt, or is refused with the reason.

The text is under `prompt`, `question`, `problem`, `instruction` or `messages`; GSM8K's and MATH's
own rows (`question` and `answer`, `problem` and `solution`) are taken as math with a reference.
Fields that mean nothing here are let be.
"""

import json
from collections.abc import Sequence
from typing import cast

from ..stores.keys import Json, row_id
from ..stores.records import Check, Message, Prompt, Split

ROLES = ("system", "user", "assistant")
SPLITS: tuple[Split, ...] = ("train", "held-out")
TEXT_FIELDS = ("messages", "prompt", "question", "problem", "instruction")
REFERENCE_FIELDS = {"question": "answer", "problem": "solution"}
"""Where data sets of math keep the worked solution, by the field that holds the problem."""
GENERAL, MATH = "general", "math"

Row = dict[str, object]


class RowError(ValueError):
    """What is wrong with one row; the reader adds file and line."""


def _unique(pairs: list[tuple[str, object]]) -> Row:
    """Build an object; a field that stands twice would be lost unseen."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowError(f"the field {twice!r} stands twice")
    return row


def parse_row(line: str) -> Row:
    """Return the JSON object of a line.

    Raises:
        RowError: if it holds none.
    """
    try:
        row: object = json.loads(line, object_pairs_hook=_unique)
    except RowError:
        raise
    except json.JSONDecodeError as error:
        raise RowError(f"no JSON: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise RowError(f"no JSON that can be read: {error}") from error
    if not isinstance(row, dict):
        raise RowError("expected a JSON object; JSON Lines has one object a line")
    return cast("Row", row)


def _text(value: object, name: str) -> str:
    """Return a text that can be stored and shown."""
    if not isinstance(value, str):
        raise RowError(f"{name!r} must be a text, and is {_kind(value)}")
    if not value.strip():
        raise RowError(f"{name!r} holds no text")
    if "\0" in value:
        raise RowError(f"{name!r} holds a NUL character; remove it")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise RowError(f"{name!r} holds half a character (a lone surrogate); repair the text")
    return value


def _kind(value: object) -> str:
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


def _optional(row: Row, name: str) -> str | None:
    value = row.get(name)
    return None if value is None else _text(value, name)


def to_prompt(row: Row, *, task: str | None, split: Split, source: str) -> Prompt:
    """Return the prompt of a row; `task` and `split` stand in where the row names none.

    Raises:
        RowError: if the row can not be read as meant.
    """
    field = _text_field(row)
    messages = _messages(row, field)
    own = REFERENCE_FIELDS.get(field)
    worked = _optional(row, own) if own else None
    reference = _optional(row, "reference") or worked
    checks = _checks(row.get("checks"))
    name = _optional(row, "task") or task or (MATH if worked else GENERAL)
    return Prompt(
        prompt_id=_prompt_id(row) or content_id(messages, reference, checks, name),
        task=name,
        split=_split(row) or split,
        messages=messages,
        reference=reference,
        checks=checks,
        source=source,
    )


def content_id(
    messages: Sequence[Message], reference: str | None, checks: Sequence[Check], task: str
) -> str:
    """Return the id of a prompt that has none of its own: equal prompts get equal ids."""
    return row_id(
        "prompt",
        {
            "messages": as_json(messages),
            "reference": reference,
            "checks": [[check.kind, check.argument] for check in checks],
            "task": task,
        },
    )


def as_json(messages: Sequence[Message]) -> Json:
    """Return a conversation as plain data, to be hashed."""
    return [[message.role, message.content] for message in messages]


def _prompt_id(row: Row) -> str | None:
    value = row.get("prompt_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _optional(row, "prompt_id")


def _split(row: Row) -> Split | None:
    value = row.get("split")
    if value is None:
        return None
    for split in SPLITS:
        if value == split:
            return split
    raise RowError(f"'split' must be {' or '.join(SPLITS)}, and is {json.dumps(value)[:60]}")


def _text_field(row: Row) -> str:
    """Return the one field that holds the prompt."""
    present = [name for name in TEXT_FIELDS if row.get(name) is not None]
    if not present:
        names = ", ".join(TEXT_FIELDS)
        has = ", ".join(repr(name) for name in row) or "none"
        raise RowError(f"no prompt; name its field one of {names} (the row has {has[:200]})")
    if len(present) > 1:
        raise RowError(f"both {present[0]!r} and {present[1]!r} hold a prompt; keep one")
    return present[0]


def _messages(row: Row, field: str) -> tuple[Message, ...]:
    value = row[field]
    if isinstance(value, list):
        return _conversation(cast("list[object]", value), field)
    if field == "messages":
        raise RowError(f"'messages' must be a list of messages, and is {_kind(value)}")
    text = _text(value, field)
    if field == "instruction" and row.get("input") not in (None, ""):
        # Alpaca's rows keep what the instruction is about in a field of its own.
        text = f"{text}\n\n{_text(row['input'], 'input')}"
    return (Message(role="user", content=text),)


def _conversation(turns: list[object], field: str) -> tuple[Message, ...]:
    messages = list[Message]()
    for place, turn in enumerate(turns, start=1):
        where = f"{field}[{place}]"
        if not isinstance(turn, dict):
            raise RowError(f"{where!r} must be an object with role and content")
        fields = cast("Row", turn)
        role = fields.get("role")
        if role not in ROLES:
            raise RowError(f"{where!r}: the role must be one of {', '.join(ROLES)}")
        content = _text(fields.get("content"), f"{where}.content")
        messages.append(Message(role=str(role), content=content))
    if not messages or messages[-1].role != "user":
        raise RowError(f"{field!r} must end with a message of the user")
    return tuple(messages)


def _checks(value: object) -> tuple[Check, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RowError(f"'checks' must be a list, and is {_kind(value)}")
    checks = list[Check]()
    for item in cast("list[object]", value):
        if not isinstance(item, dict):
            raise RowError("each of 'checks' must be an object with kind and argument")
        check = cast("Row", item)
        argument = check.get("argument", "")
        if not isinstance(argument, str):
            raise RowError(f"'checks.argument' must be a text, and is {_kind(argument)}")
        if argument:
            argument = _text(argument, "checks.argument")
        checks.append(Check(kind=_text(check.get("kind"), "checks.kind"), argument=argument))
    return tuple(checks)
