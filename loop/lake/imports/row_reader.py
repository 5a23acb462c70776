"""Reading files to be imported: each row once, with what becomes of it, and the counts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....stores.records import Critique, Preference
from ....stores.schemas import TABLES
from ....stores.schemas import Row as StoredRow
from ...data.files import InputError, Row, RowError, placed_rows
from .imported_rows import UNRATED, identity_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The rows of the files, each with its number and what becomes of it."""

    files: tuple[Path, ...]
    read: Callable[[Row], Iterator[StoredRow]]

    def __iter__(self) -> Iterator[tuple[int, list[StoredRow]]]:
        """Give the new rows of each row of the files.

        Raises:
            InputError: for anything that can not be read as meant.
        """
        seen = dict[tuple[str, str], int]()
        number = 0
        for path in self.files:
            for place, row in placed_rows(path):
                try:
                    made = [stored for stored in self.read(row) if _is_new(seen, stored)]
                except RowError as error:
                    raise InputError(f"{path}, {place}: {error}") from error
                yield number, made
                number += 1


@dataclass(kw_only=True)
class Count:
    """How many rows were read, what became of them, and what of it could not be rated."""

    read: int = 0
    rows: Counter[str] = field(default_factory=Counter[str])
    unrated: int = 0

    def add(self, made: Sequence[StoredRow]) -> None:
        """Count what became of one row."""
        self.read += 1
        self.rows.update(TABLES[type(row)] for row in made)
        self.unrated += sum(
            isinstance(row, Critique | Preference) and row.status == UNRATED for row in made
        )


def counted(made: Iterable[Sequence[StoredRow]]) -> Count:
    """Read to the end, and count.

    Raises:
        InputError: for anything that can not be read as meant, or no rows at all.
    """
    count = Count()
    for rows in made:
        count.add(rows)
    if not count.read:
        raise InputError("the files hold no rows")
    return count


def _is_new(seen: dict[tuple[str, str], int], row: StoredRow) -> bool:
    """Whether a row was not given before.

    Raises:
        RowError: if its id stood for something else.
    """
    key = TABLES[type(row)], identity_of(row)
    content = hash(row)
    if key not in seen:
        seen[key] = content
        return True
    if seen[key] != content:
        raise RowError(f"{key[1]!r} stands for something else further up; give it an id of its own")
    return False
