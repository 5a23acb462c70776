# pyright: basic
"""Files and folders that the user asked for: whole under their name, or absent.

They lie outside the lake and can be made again, so they are written as a draft and moved into place
at the end; what is there already stays until then.
"""

import csv
import json
import os
import secrets
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from .durable import TEMPORARY, sync_folder

Record = Mapping[str, Any]
ROW_GROUP = 20_000


class TargetError(ValueError):
    """A target that cannot be written to, or that exists already."""


class Sink(Protocol):
    """A file that takes rows."""

    def put(self, row: Record) -> None:
        """Add a row."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


@contextmanager
def output_folder(target: Path, *, force: bool) -> Generator[Path]:
    """Yield a draft folder that becomes `target` if the body succeeds, and is removed if not.

    Raises:
        TargetError: if the target is there and not `force`, or cannot be made.
    """
    if target.exists() and not (force and target.is_dir()):
        remedy = "choose another --output" if force else "choose another --output, or add --force"
        raise TargetError(f"{target} is there already: {remedy}")
    draft = target.parent / f"{TEMPORARY}{secrets.token_hex(8)}-{target.name}"
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise TargetError(f"{target} cannot be made: {error.strerror}") from error
    try:
        yield draft
        _place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _place(draft: Path, target: Path) -> None:
    for path in draft.rglob("*"):
        if path.is_file():
            _sync(path)
    old = draft.with_name(f"{draft.name}.old")
    if target.exists():
        target.rename(old)
    draft.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def output_file(target: Path, data: bytes) -> None:
    """Write a file whole under its name, or leave what is there.

    Raises:
        TargetError: if it cannot be written.
    """
    draft = target.parent / f"{TEMPORARY}{secrets.token_hex(8)}-{target.name}"
    try:
        draft.write_bytes(data)
        _sync(draft)
        draft.replace(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise TargetError(f"{target} cannot be written: {error.strerror}") from error


def put_text(path: Path, text: str) -> None:
    """Write a small file of a draft folder."""
    path.write_text(text, encoding="utf-8")


def open_sink(path: Path, schema: pa.Schema) -> Sink:
    """Open a file for rows of a schema; the suffix of its name chooses the format."""
    return SINKS[path.suffix](path, schema)


class JsonLines:
    """One JSON object a line; the fields are those of the rows."""

    def __init__(self, path: Path, _schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8")

    def put(self, row: Record) -> None:
        """Add a row."""
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class Csv:
    """A header and one row a line; lists and objects are written as JSON."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._names = schema.names
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(self._names)

    def put(self, row: Record) -> None:
        """Add a row."""
        self._writer.writerow([_cell(row[name]) for name in self._names])

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class Parquet:
    """Parquet in row groups of bounded size; content-defined chunks let the HF hub deduplicate."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[Record] = []
        self._writer = pq.ParquetWriter(
            path, schema, compression="zstd", use_content_defined_chunking=True
        )

    def put(self, row: Record) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) >= ROW_GROUP:
            self._spill()

    def close(self) -> None:
        """Finish the file."""
        self._spill()
        self._writer.close()

    def _spill(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


SINKS = {".jsonl": JsonLines, ".csv": Csv, ".parquet": Parquet}


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
