"""Importing files: rows made elsewhere become a run of their own, or annotations of a run.

A file is read twice: first to the end, so that nothing is written if it cannot be used, then unit
by unit. The units are planned under the hash of the files and of how they are read: repeating an
import does only what is owed, which is nothing if it was complete.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from ....stores.journal import Journal
from ....stores.journal_reader import JOURNAL, Reader
from ....stores.keys import Json, canonical_json, digest
from ....stores.lake import RunWriter, run_folder
from ....stores.records import Critique, Preference
from ....stores.schemas import Row as StoredRow
from ...data.files import InputError, Row, file_digest, placed_rows
from ...data.rating_scale import SCALES, THREE_LEVEL, Scale
from ..query.runs import open_run
from . import IMPORTED
from .import_formats import FORMATS
from .imported_annotations import (
    ANNOTATIONS,
    IDS,
    annotated,
    annotations,
    candidates_of,
    present,
)
from .imported_grades import overall_receipts
from .imported_rows import Maker, identity_of
from .row_reader import Count, FileReading, counted

IMPORT = "import"
ROWS_A_UNIT = 1000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import; `again`: nothing was left to do."""

    run: str
    form: str
    scale: str
    read: int
    rows: Mapping[str, int]
    unrated: int
    again: bool

    def as_json(self) -> dict[str, Json]:
        """Return the fields, for a JSON document."""
        return {**asdict(self), "rows": dict(self.rows)}


def import_files(job: Import) -> Imported:
    """Import files.

    Raises:
        InputError: for files that cannot be read, or a run that holds something else.
    """
    run_folder(job.lake, job.name)
    for path in job.files:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path}: is not a plain file, and an import reads its files twice")
    forms = {path: job.form or detected(path) for path in job.files}
    scale = _scale(job, _default_scale(forms))
    source = job.source or job.files[0].name
    make = Maker(source=source, scale=scale, task=job.task)
    facts: dict[str, Json] = {
        "format": ", ".join(dict.fromkeys(forms.values())),
        "semantics": max(map(_semantics, forms.values())),
        "source": source,
        "task": job.task,
        "scale": asdict(scale),
        "files": [file_digest(path) for path in job.files],
    }
    if ANNOTATIONS in forms.values():
        return _annotate(job, make, facts)

    def read(row: Row, file: Path, number: int) -> Iterator[StoredRow]:
        return FORMATS[forms[file]].read(row, replace(make, file=file, number=number))

    return _import(job, FileReading(files=job.files, read=read), facts)


def detected(path: Path) -> str:
    """Return the format of a file by its first row.

    Raises:
        InputError: if it matches none.
    """
    for place, row in placed_rows(path):
        if annotated(row):
            return ANNOTATIONS
        found = next((name for name, form in FORMATS.items() if form.detect(row)), None)
        if found is None:
            fields = ", ".join(repr(name) for name in row)[:200]
            raise InputError(
                f"{path}, {place}: is in no known format (it has {fields}); name it: --format "
                f"{'|'.join((*FORMATS, ANNOTATIONS))}"
            )
        return found
    raise InputError(f"{path}: holds no rows")


def _default_scale(forms: Mapping[Path, str]) -> str:
    """Return the scale of formats that can be imported together.

    Raises:
        InputError: for a format that does not exist, or formats that cannot.
    """
    for form in forms.values():
        if form not in (*FORMATS, ANNOTATIONS):
            known = ", ".join((*FORMATS, ANNOTATIONS))
            raise InputError(f"--format {form}: no such format; the formats are {known}")
    scales = {
        form: THREE_LEVEL if form == ANNOTATIONS else FORMATS[form].scale for form in forms.values()
    }
    if len(scales) > 1 and (ANNOTATIONS in scales or len(set(scales.values())) > 1):
        raise InputError(
            f"{', '.join(map(str, forms))}: are {', '.join(scales)}, which are imported one by one"
        )
    return next(iter(scales.values()))


def _semantics(form: str) -> int:
    return 1 if form == ANNOTATIONS else FORMATS[form].semantics


def _scale(job: Import, default: str) -> Scale:
    name = job.scale or default
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


def _import(job: Import, reading: FileReading, facts: Mapping[str, Json]) -> Imported:
    """Import the files as a new run, or finish an import that was begun."""
    found = counted(made for _, made in reading)
    identity = digest(facts)
    journal = _journal(job, facts)
    store = RunWriter(journal)
    try:
        units = -(-found.read // ROWS_A_UNIT)
        journal.plan(0, IMPORT, identity, lambda: [digest([identity, n]) for n in range(units)])
        owed = {unit.chunk: unit.key for unit in journal.owed(0, IMPORT)}
        if owed:
            for chunk, rows in _units(reading):
                if chunk in owed:
                    told = [*rows, *overall_receipts(rows)]
                    store.commit(owed[chunk], _by_type(told), {"rows": len(rows)})
            store.flush()
            journal.record("end", f"imported {found.read} rows of {len(job.files)} files")
    finally:
        store.close()
    return _told(job, facts, found, again=not owed)


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


def _units(reading: FileReading) -> Iterator[tuple[int, list[StoredRow]]]:
    """Yield the rows of each unit: those made from a fixed number of rows of the files."""
    chunk, rows = 0, list[StoredRow]()
    for number, made in reading:
        if number // ROWS_A_UNIT > chunk:
            yield chunk, rows
            chunk, rows = chunk + 1, []
        rows += made
    yield chunk, rows


def _annotate(job: Import, make: Maker, facts: Mapping[str, Json]) -> Imported:
    """Add annotations to a run on which no process works, one unit an iteration."""
    identity = digest(facts)
    run = open_run(job.lake, job.name)
    try:
        ids = (
            str(row[name])
            for f in job.files
            for _, row in placed_rows(f)
            for name in IDS
            if name in row
        )
        known = candidates_of(run, ids)
        reading = FileReading(
            files=job.files, read=lambda row, _file, _number: annotations(row, make, known)
        )
        made = [rows for _, rows in reading]
        told = present(run)
    finally:
        run.close()
    found = counted(made)
    by_iteration = dict[int, list[StoredRow]]()
    for row in (row for rows in made for row in rows):
        if isinstance(row, Critique | Preference):
            by_iteration.setdefault(row.iteration, []).append(row)
    store = RunWriter(Journal(run.folder))
    try:
        owed = [
            _annotate_iteration(store, number, identity, rows, told)
            for number, rows in sorted(by_iteration.items())
        ]
        store.flush()
    finally:
        store.close()
    return _told(job, facts, found, again=not any(owed))


def _annotate_iteration(
    store: RunWriter, iteration: int, identity: str, rows: Sequence[StoredRow], told: frozenset[str]
) -> bool:
    """Commit the annotations of one iteration; return whether they were owed."""
    stage = f"annotate:{identity[:12]}"
    store.journal.plan(iteration, stage, identity, lambda: [digest([identity, iteration])])
    owed = store.journal.owed(iteration, stage)
    for unit in owed:
        new = [row for row in rows if identity_of(row) not in told]
        store.commit(unit.key, _by_type(new), {"rows": len(new)})
    return bool(owed)


def _by_type(rows: Sequence[StoredRow]) -> dict[type[StoredRow], Sequence[StoredRow]]:
    found = dict[type[StoredRow], list[StoredRow]]()
    for row in rows:
        found.setdefault(type(row), []).append(row)
    return dict(found)


def _told(job: Import, facts: Mapping[str, Json], found: Count, *, again: bool) -> Imported:
    return Imported(
        run=job.name,
        form=str(facts["format"]),
        scale=cast("Mapping[str, str]", facts["scale"])["name"],
        read=found.read,
        rows=dict(found.rows),
        unrated=found.unrated,
        again=again,
    )
