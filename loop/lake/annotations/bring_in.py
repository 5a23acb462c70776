"""Committing people's judgments from the ledger to the run, in the same way as imported ones.

The process that holds the run commits them: the run itself when it is opened and before it makes
pairs, or `lpfloop annotations --commit` while the run is free. A kill in between is harmless: rows
that are in the run already are recognised by their ids.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from ....stores.annotation_ledger import AnnotationLedger, LedgerEntry, entries, has_ledger
from ....stores.journal import Journal
from ....stores.keys import digest
from ....stores.lake import RunReader, RunWriter
from ....stores.records import Critique, Preference
from ....stores.schemas import Row as StoredRow
from ...data.files import Row
from ...data.rating_scale import SCALES, THREE_LEVEL
from ..imports.imported_annotations import (
    Stored,
    add_annotations,
    annotations,
    candidates_of,
    present,
)
from ..imports.imported_rows import Known, Maker
from .judging_queue import JudgedItem


def waiting(folder: Path) -> list[LedgerEntry]:
    """Return people's verdicts on a run that are not committed to it yet."""
    return [entry for entry in entries(folder) if not entry.undone and entry.unit is None]


def bring_in(store: RunWriter) -> int:
    """Commit people's judgments since the last time; return their number."""
    if not has_ledger(store.folder) or not waiting(store.folder):
        return 0
    with (
        closing(AnnotationLedger(store.folder)) as ledger,
        closing(RunReader(store.folder)) as run,
    ):
        left = ledger.waiting()
        known = candidates_of(run, (one for entry in left for one in _ids(entry)))
        # An answer that was lost with its unit may be made again: its verdicts wait.
        ready = [entry for entry in left if all(one in known for one in _ids(entry))]
        identity = digest([[entry.number, entry.row] for entry in ready])
        rows = rows_of(ready, known)
        add_annotations(store, rows, identity, present(run, rows))
        ledger.came_in([entry.number for entry in ready], identity)
    return len(ready)


def bring_in_alone(folder: Path) -> int:
    """Commit people's judgments to a run without a running process; return their number.

    Raises:
        LockedError: if another process holds the run, so that it commits them itself.
    """
    if not waiting(folder):
        return 0
    with closing(RunWriter(Journal(folder))) as store:
        return bring_in(store)


def rows_of(
    entries: Sequence[LedgerEntry], known: Mapping[str, Known]
) -> list[Critique | Preference]:
    """Return the rows of people's judgments, as an import of the same lines makes them."""
    make = Maker(source="ledger", scale=SCALES[THREE_LEVEL], task=None)
    made: list[StoredRow] = [
        row
        for entry in entries
        for row in annotations(json.loads(entry.row, object_pairs_hook=Row), make, known)
    ]
    return [row for row in made if isinstance(row, Critique | Preference)]


def judgment_rows(entries: Sequence[LedgerEntry]) -> list[Critique | Preference]:
    """Return the rows of people's judgments without reading the run: their iteration is 0."""
    known = {
        one: Stored(one, JudgedItem.from_name(entry.item).prompt_id, 0)
        for entry in entries
        for one in _ids(entry)
    }
    return rows_of(entries, known)


def _ids(entry: LedgerEntry) -> tuple[str, ...]:
    return JudgedItem.from_name(entry.item).ids
