"""Importing files: rows made elsewhere become a separate run, or annotations of a run.

A file is read twice: first to the end, so that nothing is written if it cannot be used, then unit
by unit. The units are planned under the hash of the files and of the import's options: repeating an
import does only the pending units, so a complete import is not repeated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import cast

from ....configs.own_function import OwnFunction
from ....stores.journal import Journal
from ....stores.journal_reader import JOURNAL, Reader
from ....stores.keys import Json, canonical_json, digest
from ....stores.lake import RunWriter, run_folder
from ....stores.records import Critique, FilterCount, Pair, Preference, Prompt
from ....stores.schemas import TABLES
from ....stores.schemas import Row as StoredRow
from ...data.files import InputError, Row, RowError, file_digest, placed_rows
from ...data.pairs import Unfit, unfit
from ...data.rating_scale import SCALES, THREE_LEVEL, Scale
from ...data.row_notes import BAD_SHARE, PromptIds, RowNotes
from ...data.text_lines import BadRow, refuse
from ..query.runs import NoSuchRunError, open_run
from . import IMPORTED
from .import_formats import ANNOTATIONS, FORMATS, format_of, named_layout, rows_in_format
from .imported_annotations import (
    IDS,
    add_annotations,
    annotations,
    candidates_of,
    is_annotation,
    present,
)
from .imported_rows import UNRATED, Maker, by_type, identity_of
from .ultrafeedback_rows import overall_counts

IMPORT = "import"
ROWS_A_UNIT = 1000
ReadRow = Callable[[Row, Path], Iterable[StoredRow]]
"""Makes the rows of the lake from a row of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A request: which files to import into which run, and how to read them."""

    lake: Path
    name: str
    files: tuple[Path, ...]
    form: str | None = None
    source: str | None = None
    task: str | None = None
    scale: str | None = None
    failure: float | None = None
    success: float | None = None
    skip_bad: bool = False
    bad_share: float = BAD_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import; `again`: nothing was left to do.

    `notes` are sentences on unused fields and skipped rows.
    """

    run: str
    form: str
    scale: str
    read: int
    rows: Mapping[str, int]
    unrated: int
    again: bool
    notes: RowNotes

    def as_json(self) -> dict[str, Json]:
        """Return the fields, for a JSON document."""
        return {
            "run": self.run,
            "form": self.form,
            "scale": self.scale,
            "read": self.read,
            "rows": dict(self.rows),
            "unrated": self.unrated,
            "again": self.again,
            **self.notes.as_json(),
        }


def import_files(job: Import) -> Imported:
    """Import files.

    Raises:
        InputError: for files that cannot be read, or a run that holds something else.
    """
    run_folder(job.lake, job.name)
    for path in job.files:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path}: is not a plain file, and an import reads its files twice")
    look = _notes(job).bad
    layout = named_layout(job.form)
    own = layout if isinstance(layout, OwnFunction) else None
    forms = {path: job.form or detect_format(path, look) for path in job.files}
    scale = _scale(job, forms)
    source = job.source or job.files[0].name
    make = Maker(source=source, scale=scale, task=job.task)
    facts: dict[str, Json] = {
        "format": ", ".join(dict.fromkeys(forms.values())),
        "semantics": max(
            FORMATS[form].semantics if form in FORMATS else 1 for form in forms.values()
        ),
        **({} if own is None else {"function": own.sha256}),
        "source": source,
        "task": job.task,
        "scale": asdict(scale),
        "files": [file_digest(path) for path in job.files],
        **({"skip_bad": True} if job.skip_bad else {}),
    }
    if ANNOTATIONS in forms.values():
        return _annotate(job, make, facts)

    def read(row: Row, file: Path) -> Iterable[StoredRow]:
        made = (form.read(known, make) for form, known in rows_in_format(row, own or forms[file]))
        rows = chain.from_iterable(made)
        # Several rows of a user's function may be about one prompt or answer.
        return rows if own is None else dict.fromkeys(rows)

    return _import(job, read, facts)


def _notes(job: Import) -> RowNotes:
    remedy = "; --skip-bad imports the other rows"
    return RowNotes(skips=job.skip_bad, remedy=remedy)


def detect_format(path: Path, bad: BadRow = refuse) -> str:
    """Return the format of a file by its first row that can be read.

    Raises:
        InputError: if it matches none.
    """
    for place, row in placed_rows(path, bad):
        if is_annotation(row):
            return ANNOTATIONS
        found = format_of(row)
        if found is None:
            fields = ", ".join(repr(name) for name in row)[:200]
            raise InputError(
                f"{path}, {place}: is in no known format (it has {fields}); name it: --as "
                f"{'|'.join((*FORMATS, ANNOTATIONS))}, or a function that reads its rows: "
                "--as ./FILE.py:NAME"
            )
        return found
    raise InputError(f"{path}: holds no rows")


def _scale(job: Import, forms: Mapping[Path, str]) -> Scale:
    """Return the scale of the ratings: the requested one, or that of the formats.

    Raises:
        InputError: for formats that cannot be imported together, or a scale that does not exist.
    """
    scales = {
        form: FORMATS[form].scale if form in FORMATS else THREE_LEVEL for form in forms.values()
    }
    if len(scales) > 1 and (ANNOTATIONS in scales or len(set(scales.values())) > 1):
        raise InputError(
            f"{', '.join(map(str, forms))}: are {', '.join(scales)}, which are imported one by one"
        )
    name = job.scale or next(iter(scales.values()))
    if name not in SCALES:
        raise InputError(f"--scale {name}: no such scale; the scales are {', '.join(SCALES)}")
    scale = SCALES[name]
    scale = replace(
        scale,
        failure=scale.failure if job.failure is None else job.failure,
        success=scale.success if job.success is None else job.success,
    )
    if scale.failure >= scale.success:
        raise InputError(f"--failure {scale.failure:g} must be below --success {scale.success:g}")
    return scale


def _import(job: Import, read: ReadRow, facts: Mapping[str, Json]) -> Imported:
    """Import the files as a new run, or finish an interrupted import."""
    notes = _notes(job)
    found = _count(job, facts, _read_files(job.files, read, notes), notes)
    identity = digest(facts)
    journal = _journal(job, facts)
    store = RunWriter(journal)
    try:
        units = -(-found.read // ROWS_A_UNIT)
        journal.plan(0, IMPORT, identity, lambda: [digest([identity, n]) for n in range(units)])
        pending = {unit.chunk: unit.key for unit in journal.pending(0, IMPORT)}
        if pending:
            again = _notes(job)
            files = _read_files(job.files, read, again)
            for chunk, rows, left_out in _units(files, again, some_unfit=bool(notes.unfit)):
                if chunk in pending:
                    all_rows = [*rows, *overall_counts(rows), *left_out]
                    store.commit(pending[chunk], by_type(all_rows), {"rows": len(rows)})
            store.flush()
            journal.record("end", f"imported {found.read} rows of {len(job.files)} files")
    finally:
        store.close()
    return replace(found, again=not pending)


def _journal(job: Import, facts: Mapping[str, Json]) -> Journal:
    """Open the journal of the same import, or of a new run."""
    folder = run_folder(job.lake, job.name)
    if not (folder / JOURNAL).exists():
        return Journal.create(folder, {IMPORTED: canonical_json(facts)})
    reader = Reader(folder)
    stored = reader.meta(IMPORTED)
    reader.close()
    if stored != canonical_json(facts):
        what = "other files, or the same read in another way" if stored else "a loop's rows"
        raise InputError(f"run {job.name} holds {what}: choose another name with --run")
    return Journal(folder)


def _units(
    made: Iterable[Sequence[StoredRow]], notes: RowNotes, *, some_unfit: bool
) -> Iterator[tuple[int, list[StoredRow], list[FilterCount]]]:
    """Yield the rows and filter counts of each unit, made of a fixed number of the files' rows."""
    chunk, rows = 0, list[StoredRow]()

    def filter_counts(read: int) -> list[FilterCount]:
        pairs = [row.pair_id for row in rows if isinstance(row, Pair)]
        left_out = notes.new_unfit(pairs) if some_unfit else []
        return [*notes.new_filter_counts(read), *left_out]

    for number, new in enumerate(made):
        if number // ROWS_A_UNIT > chunk:
            yield chunk, rows, filter_counts(ROWS_A_UNIT)
            chunk, rows = chunk + 1, []
        rows += new
    yield chunk, rows, filter_counts(notes.rows - chunk * ROWS_A_UNIT)


def _annotate(job: Import, make: Maker, facts: Mapping[str, Json]) -> Imported:
    """Add annotations to a run on which no process works, one unit an iteration."""
    identity = digest(facts)
    try:
        run = open_run(job.lake, job.name)
    except NoSuchRunError as error:
        raise InputError(
            f"{job.files[0]}: its rows name candidates of a run ({', '.join(IDS)}), so they are "
            f"added to that run, which --run must name: {error}"
        ) from error
    notes, look = _notes(job), _notes(job).bad
    try:
        ids = (
            str(row[name])
            for f in job.files
            for _, row in placed_rows(f, look)
            for name in IDS
            if name in row
        )
        known = candidates_of(run, ids)
        made = [*_read_files(job.files, lambda row, _: annotations(row, make, known), notes)]
        present_ids = present(run, (row for rows in made for row in rows))
    finally:
        run.close()
    found = _count(job, facts, made, notes)
    rows = [row for rows in made for row in rows if isinstance(row, Critique | Preference)]
    first = min((row.iteration for row in rows), default=0)
    counts = [replace(counted, iteration=first) for counted in notes.new_filter_counts(found.read)]
    store = RunWriter(Journal(run.folder))
    try:
        pending = add_annotations(store, [*rows, *counts] if rows else [], identity, present_ids)
    finally:
        store.close()
    return replace(found, again=not pending)


def _read_files(files: Sequence[Path], read: ReadRow, notes: RowNotes) -> Iterator[list[StoredRow]]:
    """Yield the new rows of each row of the files that is not left out.

    Raises:
        InputError: for a row that cannot be read and may not be left out.
    """
    known = _RowsSoFar()
    for path in files:
        for place, row in placed_rows(path, notes.bad):
            try:
                made = list(read(row, path))
                reason = unfit_pair(made)
                if reason is not None:
                    notes.leave_out(path, place, reason)
                    continue
                new = known.new(made, row, path, place)
            except RowError as error:
                notes.bad(path, place, error)
                continue
            notes.read(row)
            yield new


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


def _count(
    job: Import, facts: Mapping[str, Json], made: Iterable[Sequence[StoredRow]], notes: RowNotes
) -> Imported:
    """Read to the end, and count.

    Raises:
        InputError: for a row that cannot be read, too many bad rows, or no rows at all.
    """
    read, unrated, rows = 0, 0, Counter[str]()
    for some in made:
        read += 1
        rows.update(TABLES[type(row)] for row in some)
        unrated += sum(
            isinstance(row, Critique | Preference) and row.status == UNRATED for row in some
        )
    if not read:
        left_out = "".join(f"; {note}" for note in notes.sentences())
        raise InputError(f"the files hold no rows that can be imported{left_out}")
    notes.require_few(job.bad_share, "--bad-share")
    return Imported(
        run=job.name,
        form=str(facts["format"]),
        scale=cast("Mapping[str, str]", facts["scale"])["name"],
        read=read,
        rows=dict(rows),
        unrated=unrated,
        again=False,
        notes=notes,
    )
