# pyright: basic
"""Derived tables: rows made anew from a run's rows, without a model, beside what the loop made.

A derived table is the folder `derived/NAME` of a run: a Parquet file for each of its tables, the
lineage that says from what and how they were made, and a manifest of hashes. It is there whole or
not at all, and never changes. It belongs to no unit: the run's journal and digest know nothing of
it, so it can be made while a daemon writes, and be deleted.
"""

import json
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
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
from .sealed import MANIFEST, check_folder, file_sha256

DERIVED = "derived"
LINEAGE = "lineage.json"
ROWS_A_GROUP = 2048
"""Few, so that little is read for the rows of one prompt, which hold whole conversations."""


class DerivedError(ValueError):
    """A derived table that is not there, or whose name is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A derived table as it lies: its tables, and the lineage that says how they were made."""

    folder: Path
    lineage: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.folder.name

    @property
    def tables(self) -> list[str]:
        """The tables that it holds."""
        return sorted(path.stem for path in self.folder.glob("*.parquet"))

    @property
    def identity(self) -> str:
        """The hash of all its rows, whoever made them and when."""
        entries = json.loads((self.folder / MANIFEST).read_bytes())
        return digest([[e["name"], e["sha256"]] for e in entries if e["name"] != LINEAGE])

    def path(self, table: str) -> Path:
        """Return the file of a table.

        Raises:
            DerivedError: if it has no such table.
        """
        if table not in self.tables:
            has = ", ".join(self.tables)
            raise DerivedError(f"derived table {self.name} holds no {table}; it holds {has}")
        return self.folder / f"{table}.parquet"

    def scan(self, table: str) -> pl.LazyFrame:
        """Return the rows of a table."""
        return pl.scan_parquet(self.path(table))

    def check(self) -> None:
        """Prove that every byte is as it was published.

        Raises:
            DamagedError: naming the first file that is not.
        """
        check_folder(self.folder, file_sha256(self.folder / MANIFEST))


def derived_names(run: Path) -> list[str]:
    """Return the names of the derived tables of the run at `run`, oldest first."""
    found = (run / DERIVED).glob(f"*/{MANIFEST}")
    folders = [path.parent for path in found if not path.parent.name.startswith(TEMPORARY)]
    return [path.name for path in sorted(folders, key=lambda p: (p.stat().st_mtime_ns, p.name))]


def open_derived(run: Path, name: str) -> Derived:
    """Return a derived table of the run at `run`.

    Raises:
        DerivedError: if it is not there, naming those that are.
    """
    names = derived_names(run)
    if name not in names:
        known = ", ".join(names) or "none; `lpfloop rederive` makes one"
        raise DerivedError(f"run {run.name} has no derived table {name!r}; it has {known}")
    folder = run / DERIVED / name
    return Derived(folder=folder, lineage=json.loads((folder / LINEAGE).read_bytes()))


def scan_derived(run: Path, name: str, table: str) -> pl.LazyFrame:
    """Return the rows of a table of a derived table.

    Raises:
        DerivedError: if it is not there.
    """
    return open_derived(run, name).scan(table)


@dataclass(kw_only=True)
class Draft:
    """A derived table in the making: rows are added table by table, batch by batch."""

    folder: Path
    rows: dict[str, int] = field(default_factory=dict[str, int])
    _writers: dict[str, pq.ParquetWriter] = field(default_factory=dict[str, pq.ParquetWriter])

    def add(self, table: str, rows: Batch) -> None:
        """Add rows to a table."""
        if table not in self._writers:
            self._writers[table] = pq.ParquetWriter(
                self.folder / f"{table}.parquet",
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
        """Give the whole its name, durably."""
        self.close()
        told = {**lineage, "rows": self.rows}
        write_file(self.folder / LINEAGE, json.dumps(told, indent=1).encode())
        publish_folder(self.folder, self.folder.parent, name)
        return open_derived(self.folder.parent.parent, name)


@contextmanager
def deriving(run: Path) -> Generator[Draft]:
    """Give a draft to which nobody else adds; what is not published at the end is gone.

    Raises:
        LockedError: if somebody else derives tables of this run.
    """
    parent = make_folder(run / DERIVED)
    handle = acquire(parent, f"the derived tables of run {run.name}")
    with ExitStack() as ending:
        ending.callback(release, handle)
        sweep(parent)
        draft = Draft(folder=make_folder(parent / f"{TEMPORARY}draft"))
        ending.callback(_discard, draft)
        yield draft


def _discard(draft: Draft) -> None:
    draft.close()
    if draft.folder.exists():
        remove(draft.folder)
