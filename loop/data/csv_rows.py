"""The rows of a CSV or TSV file, by the rules of RFC 4180: every value is a text.

An empty cell is an absent value. The `'` that lpfloop and spreadsheets write before a text that
would be a formula is removed. Nothing is guessed: the file's name decides the separator, numbers
stay texts, and each row is as long as the header.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...stores.spreadsheet_cells import unguard_cell
from .file_row import Row
from .text_lines import (
    LONGEST_LINE,
    BadRow,
    InputError,
    Placed,
    RowError,
    bare_name,
    byte_lines,
    decode_line,
)

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
