"""The rows of JSON Lines, or of one JSON list, and values that a cell contains as JSON text.

pandas and `lpfloop export --as csv` write lists, objects and conversations as such texts. A text
that is a conversation is never an answer: it is parsed, or its row is refused.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from .conversations import OTHER_MEDIA, speaker_of
from .file_row import Row
from .text_lines import (
    BadRow,
    InputError,
    Placed,
    RowError,
    byte_lines,
    decode_line,
    open_unpacked,
    utf8_text,
)

LARGEST_LIST = 2**30
LISTED = frozenset(
    {
        *("messages", "conversations", "history", "checks", *OTHER_MEDIA),
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


def line_rows(path: Path, bad: BadRow) -> Iterator[Placed]:
    """Yield the rows of JSON Lines, skipping blank lines; bad rows are passed to `bad`.

    Raises:
        InputError: for a file that cannot be read.
    """
    for number, data in byte_lines(path):
        place = f"line {number}"
        try:
            text = decode_line(number, data)
            row = parse_row(text) if text.strip() else None
        except RowError as error:
            bad(path, place, error)
            continue
        if row is not None:
            yield place, row


def list_rows(path: Path, bad: BadRow) -> Iterator[Placed]:
    """Yield the rows of one JSON list, as AlpacaEval and AlpacaFarm publish theirs.

    Entries that are not objects are passed to `bad`.

    Raises:
        InputError: for a file that cannot be read.
    """
    with open_unpacked(path) as file:
        data = file.read(LARGEST_LIST + 1)
    if len(data) > LARGEST_LIST:
        raise InputError(
            f"{path}: a JSON list of over {LARGEST_LIST} bytes; write one JSON object a line"
        )
    try:
        values = parse_rows(utf8_text(1, data))
    except RowError as error:
        raise InputError(f"{path}: {error}") from error
    for number, value in enumerate(cast("list[object]", values), start=1):
        place = f"row {number}"
        try:
            row = _object(value, f"entry {number} of the list is none")
        except RowError as error:
            bad(path, place, error)
            continue
        yield place, row


def parse_row(line: str) -> Row:
    """Return the JSON object of a line.

    Raises:
        RowError: if it does not hold one.
    """
    return _object(parse_rows(line), "JSON Lines has one object a line")


def _object(value: object, remedy: str) -> Row:
    if not isinstance(value, Row):
        raise RowError(f"expected a JSON object; {remedy}")
    return value


def parse_rows(text: str) -> object:
    """Return the value of a JSON text, whose objects are rows.

    Raises:
        RowError: if it is not JSON, or an object has a field twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RowError:
        raise
    except json.JSONDecodeError as error:
        raise RowError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise RowError(f"not readable as JSON: {error}") from error


def _unique(pairs: list[tuple[str, object]]) -> Row:
    """Build an object; a repeated field would be lost silently, so it is refused."""
    row = Row(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowError(f"the field {twice!r} appears twice")
    return row


def unpack_cells(row: Row) -> Row:
    """Replace the fields of a row that contain JSON text by the parsed values.

    Raises:
        RowError: for a conversation whose JSON is broken.
    """
    for name in tuple(row):
        value = row.glance(name)
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{", '"'):
            row[name] = _unpack(name, value)
    return row


def _unpack(name: str, text: str) -> object:
    """Return a list or conversation parsed from a text; any other text unchanged."""
    speaks = SPEAKS.search(text) is not None
    if not speaks and name.lower() not in LISTED:
        return text
    try:
        value = parse_rows(text)
    except RowError as error:
        if speaks and BEGINS.match(text):
            problem = f"{name!r} holds a conversation that is not valid JSON: {error}"
            raise RowError(problem) from error
        return text
    if isinstance(value, str) and BEGINS.match(value):
        raise RowError(
            f"{name!r} holds a conversation that is encoded as JSON twice; encode it once"
        )
    if name.lower() in LISTED:
        return cast("object", value) if isinstance(value, list | Row) else text
    turns = cast("list[object]", value) if isinstance(value, list) else [value]
    return cast("object", value) if any(map(_is_turn, turns)) else text


def _is_turn(value: object) -> bool:
    if not isinstance(value, Row) or speaker_of(value) is None:
        return False
    return "content" in value or "value" in value
