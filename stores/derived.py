# pyright: basic
"""Derived tables: rows recomputed from a run's rows without a model, stored next to them.

A derived table is the folder `derived/NAME` of a run: a Parquet file for each of its tables, the
lineage with its input and settings, and a manifest of hashes. It is there whole or not at all, and
never changes. It belongs to no unit: the run's journal and digest do not cover it, so it can be
made while a daemon writes, and deleted at any time.
"""

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from .durable import (
    TEMPORARY,
    make_folder,
    publish_folder,
    remove,
    sweep,
    write_file,
)
from .keys import Json, digest
from .lock import acquire, release
from .schemas import ROW_TYPES, SCHEMAS, Batch, to_table
from .sealed import (
    MANIFEST,
    DamagedError,
    check_folder,
    file_sha256,
    files_below,
    read_file,
)
from .verified import verify

DERIVED = "derived"
LINEAGE = "lineage.json"
ROWS = ".parquet"
ROWS_A_GROUP = 2048
"""Small, as rows hold whole conversations: reading one prompt's rows reads little else."""


class DerivedError(ValueError):
    """A derived table that does not exist, or whose name is taken."""

    code = "LPF-208"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A published derived table: its tables, and their lineage.

    `hashes` maps the names of its files to their hashes.
    """

    folder: Path
    lineage: Mapping[str, Any]
    hashes: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def tables(self) -> list[str]:
        """The names of its tables, sorted."""
        return sorted(name.removesuffix(ROWS) for name in self.hashes if name.endswith(ROWS))

    @property
    def identity(self) -> str:
        """The hash of all its rows, independent of when they were made."""
        return digest([[n, sha256] for n, sha256 in self.hashes.items() if n != LINEAGE])

    def path(self, table: str) -> Path:
        """Return the file of a table.

        Raises:
            DerivedError: if it does not contain this table.
        """
        if table not in self.tables:
            has = ", ".join(self.tables)
            raise DerivedError(f"derived table {self.name} holds no {table}; it holds {has}")
        return self.folder / f"{table}{ROWS}"

    def scan(self, table: str) -> pl.LazyFrame:
        """Return the rows of a table, once its file is verified.

        Raises:
            DamagedError: if it was altered.
        """
        path = self.path(table)
        with _add_remedy(self.folder):
            verify([(path, self.hashes[path.name])])
        return pl.scan_parquet(path)

    def check(self) -> None:
        """Prove that every byte is unaltered.

        Raises:
            DamagedError: naming the first file that is altered.
        """
        with _add_remedy(self.folder):
            check_folder(self.folder, file_sha256(self.folder / MANIFEST))


def derived_names(run: Path) -> list[str]:
    """Return the names of the derived tables of the run at `run`, oldest first."""
    found = (run / DERIVED).glob(f"*/{MANIFEST}")
    folders = [path.parent for path in found if not path.parent.name.startswith(TEMPORARY)]
    return [path.name for path in sorted(folders, key=lambda p: (p.stat().st_mtime_ns, p.name))]


def open_derived(run: Path, name: str) -> Derived:
    """Return a derived table of the run at `run`.

    Raises:
        DerivedError: if it does not exist, naming the existing ones.
        DamagedError: if its manifest or lineage was altered.
    """
    names = derived_names(run)
    if name not in names:
        known = ", ".join(names) or "none; `lpfloop rebuild-pairs` makes one"
        raise DerivedError(f"derived table {name!r} is not in run {run.name}; it has {known}")
    folder = run / DERIVED / name
    with _add_remedy(folder):
        hashes = _hashes(folder)
        lineage = read_file(folder / LINEAGE)
        if hashlib.sha256(lineage).hexdigest() != hashes[LINEAGE]:
            raise DamagedError(f"{folder / LINEAGE} was altered")
    return Derived(folder=folder, lineage=json.loads(lineage), hashes=hashes)


def _hashes(folder: Path) -> dict[str, str]:
    """Return the hash of each file of a derived table, by name, as its manifest has them.

    Raises:
        DamagedError: if the manifest and the folder have different files.
    """
    try:
        entries = json.loads(read_file(folder / MANIFEST))
        hashes = {str(entry["name"]): str(entry["sha256"]) for entry in entries}
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{folder / MANIFEST} was altered") from error
    if set(hashes) != {name for name, _ in files_below(folder)}:
        raise DamagedError(f"{folder / MANIFEST} was altered, or files were added or removed")
    return hashes


@contextmanager
def _add_remedy(folder: Path) -> Generator[None]:
    """Add a remedy to the message on damage: nothing else depends on a derived table."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(
            f"{error}; remove {folder} and make it again: `lpfloop rebuild-pairs`"
        ) from error


def scan_derived(run: Path, name: str, table: str) -> pl.LazyFrame:
    """Return the rows of a table of a derived table.

    Raises:
        DerivedError: if it does not exist.
    """
    return open_derived(run, name).scan(table)


@dataclass(kw_only=True)
class Draft:
    """A derived table that is being written: rows are added table by table, batch by batch."""

    folder: Path
    rows: dict[str, int] = field(default_factory=dict[str, int])
    _writers: dict[str, pq.ParquetWriter] = field(default_factory=dict[str, pq.ParquetWriter])

    def add(self, table: str, rows: Batch) -> None:
        """Add rows to a table; its file is created with the first of them."""
        if table not in self._writers:
            self._writers[table] = pq.ParquetWriter(
                self.folder / f"{table}{ROWS}",
                SCHEMAS[table],
                compression="zstd",
                write_page_checksum=True,
            )
        self._writers[table].write_table(to_table(ROW_TYPES[table], rows), ROWS_A_GROUP)
        self.rows[table] = self.rows.get(table, 0) + len(rows)

    def close(self) -> None:
        """Finish the files."""
        while self._writers:
            self._writers.popitem()[1].close()

    def publish(self, name: str, lineage: Mapping[str, Json]) -> Derived:
        """Publish the draft durably as `derived/NAME`."""
        self.close()
        manifest = {**lineage, "rows": self.rows}
        write_file(self.folder / LINEAGE, json.dumps(manifest, indent=1).encode())
        publish_folder(self.folder, self.folder.parent, name)
        return open_derived(self.folder.parent.parent, name)


@contextmanager
def deriving(run: Path) -> Generator[Draft]:
    """Yield a draft while holding the lock; if it is not published, it is removed at the end.

    Raises:
        LockedError: if another process derives tables of this run.
    """
    parent = make_folder(run / DERIVED)
    handle = acquire(parent, f"the derived tables of run {run.name}")
    try:
        sweep(parent)
        draft = Draft(folder=make_folder(parent / f"{TEMPORARY}draft"))
        try:
            yield draft
        finally:
            draft.close()
            if draft.folder.exists():
                remove(draft.folder)
    finally:
        release(handle)
