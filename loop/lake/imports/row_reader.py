"""Reading files to import: each row once, the rows it becomes, and counts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....stores.records import Critique, Pair, Preference, Prompt
from ....stores.schemas import TABLES
from ....stores.schemas import Row as StoredRow
from ...data.files import InputError, Row, RowError, placed_rows
from ...data.prompt_ids import PromptIds
from ...data.row_notes import RowNotes
from ...data.unfit_pairs import Unfit, unfit
from .imported_rows import UNRATED, identity_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReading:
    """The rows of the files, each with its number and the rows it becomes.

    `read` reads a row of a file.
    """

    files: tuple[Path, ...]
    read: Callable[[Row, Path], Iterator[StoredRow]]

    def rows(self, notes: RowNotes) -> Iterator[tuple[int, list[StoredRow]]]:
        """Yield the new rows of each row of the files.

        Raises:
            InputError: for a row that cannot be read and may not be left out.
        """
        known = _RowsSoFar()
        number = 0
        for path in self.files:
            for place, row in placed_rows(path, notes.bad):
                try:
                    made = list(self.read(row, path))
                    reason = unfit_pair(made)
                    if reason is not None:
                        notes.leave_out(path, place, reason)
                        continue
                    new = known.new(made, row, path, place)
                except RowError as error:
                    notes.bad(path, place, error)
                    continue
                notes.read(row)
                yield number, new
                number += 1


def unfit_pair(made: Iterable[StoredRow]) -> Unfit | None:
    """Return why the pair, or the vote, of a row cannot be trained on; None if it can."""
    for row in made:
        if isinstance(row, Preference) and row.first_id == row.second_id:
            return "identical"
        if isinstance(row, Pair):
            return unfit(side[-1].content for side in (row.chosen, row.rejected))
    return None


@dataclass(slots=True)
class _RowsSoFar:
    """The results of the rows so far, without skipped rows."""

    _ids: PromptIds = field(default_factory=PromptIds)
    _seen: dict[tuple[str, str], tuple[int, str]] = field(
        default_factory=dict[tuple[str, str], tuple[int, str]]
    )

    def new(self, made: Sequence[StoredRow], row: Row, path: Path, place: str) -> list[StoredRow]:
        """Return the rows made of a row that were not read before.

        Raises:
            RowError: if an id in it was used for something else.
        """
        try:
            return [
                stored
                for stored in made
                if (
                    self._ids.is_new(row, stored, path, place)
                    if isinstance(stored, Prompt)
                    else self._is_new(stored, place)
                )
            ]
        except RowError:
            self._ids.forget(path, place)
            for stored in made:
                key = TABLES[type(stored)], identity_of(stored)
                if key in self._seen and self._seen[key][1] is place:
                    del self._seen[key]
            raise

    def _is_new(self, row: StoredRow, place: str) -> bool:
        key = TABLES[type(row)], identity_of(row)
        given = hash(row), place
        content, first = self._seen.setdefault(key, given)
        if content != given[0]:
            raise RowError(
                f"{key[1]!r} is the id of another row on {first}; give this one another id"
            )
        return first is place


@dataclass(kw_only=True)
class Count:
    """How many rows were read, how many rows of each table they gave, and how many stay unrated."""

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


def count_rows(made: Iterable[Sequence[StoredRow]], notes: RowNotes) -> Count:
    """Read to the end, and count.

    Raises:
        InputError: for a row that cannot be read, or no rows at all.
    """
    count = Count()
    for rows in made:
        count.add(rows)
    if not count.read:
        left_out = "".join(f"; {note}" for note in notes.sentences())
        raise InputError(f"the files hold no rows that can be imported{left_out}")
    return count
