"""What is told of the rows of files once they were read: unused fields, and rows left out.

One row that cannot be read refuses its file, or, where the user says so, is left out with a receipt
that says where it stands and what is wrong with it.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...stores.keys import Json
from ...stores.records import Receipt
from .file_row import Row, UnusedFields
from .receipts import KEPT
from .text_lines import InputError, RowError, refuse

BAD_SHARE = 0.5
"""The largest share of a file's rows that may be left out, if nobody says otherwise."""
log = logging.getLogger(__name__)

FILTER, UNREADABLE = "unreadable-rows", "unreadable"
FIRST = 3
"""How many of the rows left out a sentence tells of."""


@dataclass(kw_only=True)
class RowNotes:
    """The fields that no reader took, and the rows that were left out, in the order of the files.

    `skips` lets bad rows be left out; `remedy` names the option that does. What is read `again`
    has its fields counted already.
    """

    skips: bool = False
    remedy: str = ""
    again: bool = False
    unused: UnusedFields = field(default_factory=UnusedFields)
    skipped: list[str] = field(default_factory=list[str])
    _told: int = field(default=0, init=False)

    @property
    def seen(self) -> int:
        """How many rows there were, read or left out."""
        return self.unused.rows + len(self.skipped)

    def read(self, row: Row) -> None:
        """Note a row that was read."""
        if self.again:
            self.unused.rows += 1
        else:
            self.unused.add(row)

    def bad(self, path: Path, place: str, error: RowError) -> None:
        """Leave a row out, or refuse its file.

        Raises:
            InputError: if rows may not be left out.
        """
        if not self.skips:
            refuse(path, place, RowError(f"{error}{self.remedy}"))
        self.skipped.append(f"{path.name}, {place}: {error}")

    def add(self, other: "RowNotes") -> None:
        """Add what is told of another file."""
        self.unused.rows += other.unused.rows
        self.unused.counts.update(other.unused.counts)
        self.skipped += other.skipped

    def require_few(self, share: float, bound: str) -> None:
        """Refuse files of whose rows too many were left out; `bound` names the setting.

        Raises:
            InputError: naming the first of them.
        """
        if len(self.skipped) > share * self.seen:
            raise InputError(
                f"{len(self.skipped):,} of {self.seen:,} rows cannot be read, more than the "
                f"{share:g} that {bound} allows; the first: {self.skipped[0]}"
            )

    def new_receipts(self, kept: int) -> list[Receipt]:
        """Return a receipt for each row left out since the last ones, and one for those kept.

        There are none where rows may not be left out.
        """
        new, self._told = self.skipped[self._told :], len(self.skipped)
        if not self.skips:
            return []
        out = [_receipt(UNREADABLE, 1, (told,)) for told in new]
        return [_receipt(KEPT, kept, ()), *out]

    def as_json(self) -> dict[str, Json]:
        """Return what is told, for a JSON document."""
        return {
            "unused": self.unused.as_json(),
            "skipped": {"rows": len(self.skipped), "first": list(self.skipped[:FIRST])},
        }

    def sentences(self) -> Iterator[str]:
        """Yield what is told in words."""
        yield from filter(None, (self.unused.sentence(), self.left_out()))

    def left_out(self) -> str | None:
        """Return what is told of the rows left out, or None if there are none."""
        if not self.skipped:
            return None
        first = "; ".join(self.skipped[:FIRST])
        more = len(self.skipped) - FIRST
        rows = "row was" if len(self.skipped) == 1 else "rows were"
        rest = f"; and {more:,} more" if more > 0 else ""
        return f"{len(self.skipped):,} {rows} left out as unreadable: {first}{rest}"


def tell_unused(path: Path, unused: UnusedFields) -> None:
    """Log which fields of a file were not used, if there are any."""
    said = unused.sentence()
    if said is not None:
        log.warning("%s: %s", path, said)


def _receipt(outcome: str, count: int, examples: tuple[str, ...]) -> Receipt:
    return Receipt(
        iteration=0, filter=FILTER, items="rows", outcome=outcome, count=count, examples=examples
    )
