# pyright: basic
"""A lake: a folder of runs. A run is its journal, the parts it refers to, and its checkpoints.

`RunReader` reads, `RunWriter` (one process at a time) commits. Layout of `LAKE/runs/NAME`:
journal.sqlite, parts/TABLE/SHA256.parquet, checkpoints/SHA256/, work/ (unpublished), logs/.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from .durable import PartFile, make_folder, read_part, sweep, write_part
from .journal import JOURNAL, Journal, JournalError, Reader
from .schemas import SCHEMAS, TABLES, R, Row, from_table, to_table

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class RunNameError(ValueError):
    """A run name that can not name a folder."""


def run_folder(lake: Path, name: str) -> Path:
    """Return where run `name` lives.

    Raises:
        RunNameError: unless the name is 1 to 64 of a-z, 0-9, dot, dash and underscore.
    """
    if not RUN_NAME.fullmatch(name):
        raise RunNameError(
            f"run name {name!r} is not allowed: use 1 to 64 of a-z, 0-9, '.', '-' and '_', "
            "beginning with a letter or digit"
        )
    return lake / "runs" / name


def run_names(lake: Path) -> list[str]:
    """Return the names of the lake's runs, the one written last at the end."""
    journals = (lake / "runs").glob(f"*/{JOURNAL}")
    return [path.parent.name for path in sorted(journals, key=lambda p: p.stat().st_mtime_ns)]


class RunReader:
    """The committed rows of a run, as Polars lazy frames."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Reader(folder)

    def scan(self, table: str, *, iteration: int | None = None) -> pl.LazyFrame:
        """Return the committed rows of a table, in the order in which they were planned."""
        parts = self.journal.parts(table=table, iteration=iteration)
        paths = [part_path(self.folder, table, part.sha256) for part in parts if part.rows]
        missing = next((path for path in paths if not path.exists()), None)
        if missing:
            raise JournalError(f"{missing} is missing, although the journal refers to it")
        if not paths:
            return pl.DataFrame(SCHEMAS[table].empty_table()).lazy()
        return pl.scan_parquet(paths)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()


class RunWriter:
    """The one process that adds rows to a run."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.folder = journal.folder
        for name in (*TABLES.values(), ""):
            make_folder(self.folder / "parts" / name)
        for name in ("checkpoints", "work", "logs"):
            make_folder(self.folder / name)
        sweep(self.folder / "parts")

    def commit(
        self,
        unit: str,
        tables: Mapping[type[Row], Sequence[Row]],
        telemetry: Mapping[str, float],
    ) -> None:
        """Seal a unit's rows, one part a table, and mark the unit done."""
        parts = dict[str, PartFile]()
        for row_type, rows in tables.items():
            name = TABLES[row_type]
            parts[name] = write_part(self.folder / "parts" / name, to_table(row_type, rows))
        self.journal.commit(unit, parts, telemetry)

    def rows(self, row_type: type[R], unit: str) -> list[R]:
        """Return the committed rows of one unit, their bytes verified.

        Raises:
            JournalError: if the unit has not committed rows of that kind.
            DamagedError: if the part is missing or altered.
        """
        path = self.path(row_type, unit)
        return from_table(row_type, read_part(path, path.stem))

    def path(self, row_type: type[Row], unit: str) -> Path:
        """Return the Parquet file that holds a unit's rows."""
        table = TABLES[row_type]
        sha256 = self.journal.part(unit, table)
        if sha256 is None:
            raise JournalError(f"unit {unit} has committed no {table}")
        return part_path(self.folder, table, sha256)

    def close(self) -> None:
        """Close the journal and let the run go."""
        self.journal.close()


def part_path(folder: Path, table: str, sha256: str) -> Path:
    """Return where a sealed part lies."""
    return folder / "parts" / table / f"{sha256}.parquet"
