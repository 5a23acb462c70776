"""The rows of text files: JSON Lines, one JSON list, CSV, TSV; and JSON text in a row's cells.

CSV is read by the rules of RFC 4180: every value is a text. An empty cell is an absent value. The
`'` that lpfloop and spreadsheets write before a text that would be a formula is removed. Nothing is
guessed: the file's name decides the separator, numbers stay texts, and each row is as long as the
header.

pandas and `lpfloop export --as csv` write lists, objects and conversations as JSON text in cells. A
text that is a conversation is never an answer: it is parsed, or its row is refused.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from ...stores.spreadsheet_cells import unguard_cell
from .conversations import OTHER_MEDIA, speaker_of
from .file_row import Row, RowError
from .text_lines import (
    LONGEST_LINE,
    BadRow,
    InputError,
    Placed,
    bare_name,
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
            if not text.strip():
                continue
            row = _object(parse_rows(text), "JSON Lines has one object a line")
        except RowError as error:
            bad(path, place, error)
            continue
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


SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""The separator of the columns, by the file name's ending in lower case."""
UNCLOSED = "unexpected end of data"
"""The library's message about a quote that is open at the end of the file."""
OTHER_SEPARATORS = {";": "';'", "\t": "a tab", ",": "','", "|": "'|'"}


def csv_rows(path: Path, bad: BadRow) -> Iterator[Placed]:
    """Yield the rows of a file, each with the line on which it begins; bad ones go to `bad`.

    Raises:
        InputError: for a file that cannot be read, or not from some row on.
    """
    header: list[str] = []
    for line, cells in _records(path, bad):
        place = f"line {line}"
        if not header:
            header = _header(path, line, cells)
        elif len(cells) != len(header):
            problem = (
                f"the row has {len(cells)} columns and the header {len(header)}; put values that "
                "hold the separator or a line break into double quotes"
            )
            bad(path, place, RowError(problem))
        else:
            named = zip(header, cells, strict=True)
            yield place, Row((name, unguard_cell(cell) or None) for name, cell in named if name)


def _records(path: Path, bad: BadRow) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that are not blank, each with the line on which it begins."""
    # The library has only this limit, which is global to the process.
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(
        _texts(path), delimiter=SEPARATORS[bare_name(path).suffix.lower()], strict=True
    )
    begun, named = 1, False
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            problem = RowError(f"not a readable row of CSV: {error}; look at its double quotes")
            if not named or UNCLOSED in str(error):
                # Without its header, or below a quote that never closes, rows cannot be separated.
                raise InputError(f"{path}, line {begun}: {problem}") from error
            bad(path, f"line {begun}", problem)
            cells = []
        if cells is None:
            return
        if cells:
            named = True
            yield begun, cells
        begun = reader.line_num + 1


def _texts(path: Path) -> Iterator[str]:
    """Yield the lines. One that cannot be read refuses the file: it may be the middle of a row."""
    for number, data in byte_lines(path):
        try:
            yield decode_line(number, data)
        except RowError as error:
            raise InputError(f"{path}, line {number}: {error}") from error


def _header(path: Path, line: int, cells: Sequence[str]) -> list[str]:
    """Return the names of the columns; the first may be empty, as pandas writes its index."""
    names = [cell.strip() for cell in cells]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}, line {line}: the header names {twice!r} twice; keep one")
    if "" in names[1:]:
        place = names.index("", 1) + 1
        raise InputError(f"{path}, line {line}: column {place} of the header lacks a name")
    ending = bare_name(path).suffix.lower()
    own = SEPARATORS[ending]
    for sign, name in OTHER_SEPARATORS.items() if len(names) == 1 else ():
        if sign in names[0]:
            raise InputError(
                f"{path}, line {line}: the columns are separated by {name}, and a {ending} file "
                f"needs {OTHER_SEPARATORS[own]}; save it that way"
            )
    return names
