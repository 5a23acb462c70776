# pyright: basic
"""Exporting a table of a run: files in the target's format, and a dataset card, in a new folder.

Rows pass through in batches, so that millions of them take the memory of a few thousand. The folder
appears whole or not at all.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import yaml

from .... import __version__
from ....configs.mistakes import alike, did_you_mean, list_names
from ....configs.schema import ConfigError
from ....configs.secrecy import row_without_keys, without_keys
from ....stores.derived import open_derived, scan_derived
from ....stores.digest import run_digest
from ....stores.lake import RunReader
from ....stores.outputs import Record, open_sink, output_folder
from ....stores.schemas import ROW_TYPES
from ....stores.stage_files import require_unaltered
from ...data.pairs import TRAINABLE
from ...data.training_rows import in_use
from ..query.runs import open_run
from .feedback_rows import groups, ultrafeedback
from .trainer_shapes import DATA, PLAIN, SHAPES, plain_shape

BATCH = 4096
ULTRAFEEDBACK = "ultrafeedback"
FORMS = (*SHAPES, ULTRAFEEDBACK, *PLAIN)
HASHED_ROWS = 200_000
"""A run with more rows is not hashed for its card, which would take long."""
SIZES = {"n<1K": 1_000, "1K<n<10K": 10_000, "10K<n<100K": 100_000, "100K<n<1M": 1_000_000}
LARGER = "1M<n<10M"
LISTED = 50


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
            derived = job.derived and open_derived(run.folder, job.derived)
            lineage = derived.lineage if derived else None
            told = card(run, job, file=name, rows=rows, tags=tags, lineage=lineage)
            readme = without_keys(told)
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


def card(
    run: RunReader,
    job: Export,
    *,
    file: str,
    rows: int,
    tags: Sequence[str],
    lineage: Mapping[str, Any] | None,
) -> str:
    """Return the card as Markdown with the YAML header that the Hugging Face hub takes.

    `file` holds the `rows`; `lineage` is that of a derived table.
    """
    size = next((name for name, limit in SIZES.items() if rows < limit), LARGER)
    title, files = f"{job.name} {job.table}", [{"split": "train", "path": file}]
    header = {
        "pretty_name": title,
        "license": job.license or "unknown",
        "tags": ["lpfloop", *tags],
        "task_categories": ["text-generation"],
        "size_categories": [size],
        "configs": [{"config_name": "default", "data_files": files}],
    }
    front = yaml.safe_dump(header, sort_keys=False, allow_unicode=True)
    which = "all iterations" if job.iteration is None else f"iteration {job.iteration}"
    about = (
        f"The {job.table} of run `{run.folder.name}` ({which}) in the form `{job.form}`, "
        f"written by lpfloop {__version__}."
    )
    made = _digest(run) if lineage is None else f"```json\n{json.dumps(lineage, indent=1)}\n```"
    sections = [*_sections(run, job), ("Lineage", made)]
    parts = [f"# {title}", about, _table(("file", "rows"), [(file, rows)])]
    parts += [f"## {name}\n\n{body}" for name, body in sections if body]
    return f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n"


def _sections(run: RunReader, job: Export) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section; it is left out if its text is empty."""
    prompts, config = run.scan("prompts"), json.loads(run.journal.meta("config") or "{}")
    yield "Prompts", _count(prompts, ("task", "split"), "prompts")
    for title, table, columns in (
        ("Models", "candidates", ("kind", "model", "policy")),
        ("Reward models", "rewards", ("reward_model",)),
        ("Critics", "critiques", ("critic", "status")),
    ):
        rows = run.scan(table, iteration=job.iteration)
        yield title, _count(rows, columns, table)
    yield "Recipe", f"`{json.dumps(config['recipe'])}`" if config.get("recipe") else ""
    licence = job.license or (
        "not stated; it depends on the sources and on the models that answered. State it with "
        "`--license`"
    )
    sources = _count(prompts, ("source",), "prompts")
    yield "Sources and licences", f"{sources}\n\nLicence: {licence}."


def _count(frame: pl.LazyFrame, columns: Sequence[str], what: str) -> str:
    """Return how many rows have the same values of columns, the most first; empty without rows."""
    down = [True, *[False] * len(columns)]
    counted = frame.group_by(columns).len(what).sort(what, *columns, descending=down)
    rows = counted.select(*columns, what).head(LISTED).collect().rows()
    return _table((*columns, what), rows) if rows else ""


def _digest(run: RunReader) -> str:
    if sum(part.rows for part in run.journal.parts()) <= HASHED_ROWS:
        return f"Digest of the run: `{run_digest(run.folder)}`."
    return f"`lpfloop lake digest {run.folder.name}` prints the digest of the run."


def _table(header: Sequence[str], rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return " ".join(text.split()).replace("|", "\\|")
