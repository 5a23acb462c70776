"""Reading files to import: each row once, the rows it becomes, and counts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....stores.records import Critique, Preference, Prompt
from ....stores.schemas import TABLES
from ....stores.schemas import Row as StoredRow
from ...data.files import InputError, Row, RowError, placed_rows
from ...data.prompt_ids import PromptIds
from .imported_rows import UNRATED, identity_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReading:
    """The rows of the files, each with its number and the rows it becomes."""

    files: tuple[Path, ...]
    read: Callable[[Row, Path, int], Iterator[StoredRow]]
    """Reads a row, with its file and its index there."""

    def __iter__(self) -> Iterator[tuple[int, list[StoredRow]]]:
        """Yield the new rows of each row of the files.

        Raises:
            InputError: for a row that cannot be read.
        """
        seen, ids = dict[tuple[str, str], tuple[int, str]](), PromptIds()
        number = 0
        for path in self.files:
            for index, (place, row) in enumerate(placed_rows(path)):
                try:
                    made = [
                        stored
                        for stored in self.read(row, path, index)
                        if (
                            ids.is_new(row, stored, path, place)
                            if isinstance(stored, Prompt)
                            else _is_new(seen, stored, place)
                        )
                    ]
                except RowError as error:
                    raise InputError(f"{path}, {place}: {error}") from error
                yield number, made
                number += 1


@dataclass(kw_only=True)
class Count:
    """How many rows were read, what they became, and how many stay unrated."""

    read: int = 0
    rows: Counter[str] = field(default_factory=Counter[str])
    unrated: int = 0

    def add(self, made: Sequence[StoredRow]) -> None:
        """Count the rows that one row became."""
        self.read += 1
        self.rows.update(TABLES[type(row)] for row in made)
        self.unrated += sum(
            isinstance(row, Critique | Preference) and row.status == UNRATED for row in made
        )


def counted(made: Iterable[Sequence[StoredRow]]) -> Count:
    """Read to the end, and count.

    Raises:
        InputError: for a row that cannot be read, or no rows at all.
    """
    count = Count()
    for rows in made:
        count.add(rows)
    if not count.read:
        raise InputError("the files hold no rows")
    return count


def _is_new(seen: dict[tuple[str, str], tuple[int, str]], row: StoredRow, place: str) -> bool:
    """Whether a row was not read before.

    Raises:
        RowError: if its id was used for another row.
    """
    key = TABLES[type(row)], identity_of(row)
    given = hash(row), place
    content, first = seen.setdefault(key, given)
    if content != given[0]:
        raise RowError(
            f"{key[1]!r} is the id of another row on {first}; give this one an id of its own"
        )
    return first is place
