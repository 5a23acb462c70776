# pyright: basic
"""Exporting a table of a run: files in the target's format, and a dataset card, in a new folder.

Rows pass through in batches, so that millions of them take the memory of a few thousand. The folder
appears whole or not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from ....configs.mistakes import alike, did_you_mean, list_names
from ....configs.schema import ConfigError
from ....configs.secrecy import row_without_keys, without_keys
from ....stores.derived import open_derived, scan_derived
from ....stores.lake import RunReader
from ....stores.outputs import Record, open_sink, output_folder
from ....stores.schemas import ROW_TYPES
from ....stores.stage_files import require_unaltered
from ...data.pairs import TRAINABLE
from ...data.training_rows import in_use
from ..query.runs import open_run
from .dataset_card import Contents, card
from .feedback_rows import groups, ultrafeedback
from .trainer_shapes import DATA, PLAIN, SHAPES, plain_shape

BATCH = 4096
ULTRAFEEDBACK = "ultrafeedback"
FORMS = (*SHAPES, ULTRAFEEDBACK, *PLAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A request: the rows to export, the format, and the folder."""

    lake: Path
    name: str
    table: str
    form: str
    target: Path
    iteration: int | None = None
    derived: str | None = None
    license: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The folder and the rows of each file."""

    folder: Path
    files: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the fields, for a JSON document."""
        return {"folder": str(self.folder), "files": dict(self.files)}


def export_table(job: Export) -> Exported:
    """Write an export.

    Raises:
        ConfigError: for a format that does not fit the table, or nothing to export.
        TargetError: if the target is there already, or cannot be made.
    """
    _check(job)
    target = job.target.absolute()
    run = open_run(job.lake, job.name)
    try:
        require_unaltered(run.journal)
        with output_folder(target, force=job.force) as draft:
            name, rows, tags = _write(run, job, draft)
            if not rows:
                where = "" if job.iteration is None else f" in iteration {job.iteration}"
                raise ConfigError(f"run {job.name} contains no {job.table}{where} to export")
            contents = Contents(
                title=f"{job.name} {job.table}",
                table=job.table,
                form=job.form,
                file=name,
                rows=rows,
                tags=tags,
                iteration=job.iteration,
                license=job.license,
                lineage=_lineage(run, job),
            )
            readme = without_keys(card(run, contents))
            (draft / "README.md").write_text(readme, encoding="utf-8")
    finally:
        run.close()
    return Exported(folder=job.target, files={name: rows})


def _check(job: Export) -> None:
    """Refuse a format that does not fit the table, naming those that do."""
    if job.table not in ROW_TYPES:
        tables = list_names(alike(job.table, ROW_TYPES))
        raise ConfigError(
            f"{job.table}: no such table; {did_you_mean(job.table, ROW_TYPES)}the "
            f"tables are {tables}"
        )
    if job.form not in FORMS:
        raise ConfigError(
            f"--as {job.form}: no such format; {did_you_mean(job.form, FORMS)}the formats are "
            f"{list_names(tuple(FORMS))}"
        )
    if job.form == ULTRAFEEDBACK:
        fitting = ["candidates"]
    else:
        fitting = [shape.table for shape in SHAPES.get(job.form, ())] or [job.table]
    if job.table not in fitting:
        raise ConfigError(f"--as {job.form} takes {' or '.join(fitting)}, not {job.table}")
    if job.derived is not None and job.form == ULTRAFEEDBACK:
        raise ConfigError(f"--derived: a derived table cannot be exported as {job.form}")


def _write(run: RunReader, job: Export, draft: Path) -> tuple[str, int, Sequence[str]]:
    """Write the data file; return its name, its number of rows, and its tags."""
    if job.form == ULTRAFEEDBACK:
        name, schema, tags = f"{ULTRAFEEDBACK}.jsonl", pa.schema([]), (ULTRAFEEDBACK,)
        rows = map(ultrafeedback, groups(run, job.iteration))
    else:
        shapes = {shape.table: shape for shape in SHAPES.get(job.form, ())}
        shape = shapes.get(job.table) or plain_shape(job.table, job.form)
        name, schema, tags = f"{DATA}{shape.ending}", shape.schema, shape.tags
        rows = (made for row in _rows(run, job) for made in shape.rows(row))
    return name, _pour(rows, draft / name, schema), tags


def _rows(run: RunReader, job: Export) -> Iterator[Record]:
    for batch in _frame(run, job).collect_batches(chunk_size=BATCH, maintain_order=True):
        yield from map(row_without_keys, batch.iter_rows(named=True))


def _frame(run: RunReader, job: Export) -> pl.LazyFrame:
    if job.derived is None:
        frame = run.scan(job.table, iteration=job.iteration)
        return in_use(frame) if job.table in TRAINABLE else frame
    frame = scan_derived(run.folder, job.derived, job.table)
    return frame if job.iteration is None else frame.filter(pl.col("iteration") == job.iteration)


def _pour(rows: Iterator[Record], path: Path, schema: pa.Schema) -> int:
    sink = open_sink(path, schema)
    count = 0
    try:
        for row in rows:
            sink.put(row)
            count += 1
    finally:
        sink.close()
    return count


def _lineage(run: RunReader, job: Export) -> Mapping[str, Any] | None:
    """Return the sources of a derived table."""
    if job.derived is None:
        return None
    return open_derived(run.folder, job.derived).lineage
