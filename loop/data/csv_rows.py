"""The rows of a CSV or TSV file, by the rules of RFC 4180: every value is a text.

An empty cell is an absent value. Nothing is guessed: what separates the columns follows from the
file's name, numbers stay the texts that they are, and each row is as long as the header.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from .file_row import Row
from .text_lines import LONGEST_LINE, InputError, Placed, raw_lines

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""What separates the columns, by the file name's ending in lower case."""
OTHER_SEPARATORS = {";": "';'", "\t": "a tab", ",": "','", "|": "'|'"}


def csv_rows(path: Path) -> Iterator[Placed]:
    """Yield the rows of a file, each with the line on which it begins.

    Raises:
        InputError: for a file or row that cannot be read.
    """
    header: list[str] = []
    for line, cells in _records(path):
        if not header:
            header = _header(path, line, cells)
            continue
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {line}: the row has {len(cells)} columns and the header "
                f"{len(header)}; put values that hold the separator or a line break into double "
                "quotes"
            )
        named = zip(header, cells, strict=True)
        yield f"line {line}", Row((name, cell or None) for name, cell in named if name)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that are not blank, each with the line on which it begins."""
    # The bound is the library's only one, and holds for the whole process.
    csv.field_size_limit(LONGEST_LINE)
    separator = SEPARATORS[path.suffix.lower()]
    lines = (text for _, text in raw_lines(path))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    begun = 1
    try:
        for cells in reader:
            if cells:
                yield begun, cells
            begun = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, line {begun}: not a readable row of CSV: {error}; look at its double quotes"
        ) from error


def _header(path: Path, line: int, cells: Sequence[str]) -> list[str]:
    """Return the names of the columns; the first may have none, as pandas writes its index."""
    names = [cell.strip() for cell in cells]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}, line {line}: the header names {twice!r} twice; keep one")
    if "" in names[1:]:
        place = names.index("", 1) + 1
        raise InputError(f"{path}, line {line}: column {place} of the header has no name")
    own = SEPARATORS[path.suffix.lower()]
    for sign, name in OTHER_SEPARATORS.items() if len(names) == 1 else ():
        if sign in names[0]:
            raise InputError(
                f"{path}, line {line}: the columns are separated by {name}, and those of a "
                f"{path.suffix.lower()} file by {OTHER_SEPARATORS[own]}; save it so"
            )
    return names
