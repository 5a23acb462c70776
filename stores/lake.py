# pyright: basic
"""A lake: a folder of runs. A run is its journal, the parts it refers to, and its checkpoints.

`RunReader` reads, `RunWriter` (one process at a time) commits. Layout of `LAKE/runs/NAME`:
journal.sqlite, parts/TABLE/SHA256.parquet, checkpoints/SHA256/, quarantine/ (damaged files), work/
(unpublished), logs/.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import polars as pl

from .committer import Committer, Finished, part_folder, when_there_is_room
from .durable import make_folder, quarantine, sweep
from .failpoints import reach
from .journal import Journal
from .journal_reader import JOURNAL, JournalError, Reader
from .schemas import SCHEMAS, TABLES, R, Row, from_table
from .sealed import DamagedError, check_folder, check_part, read_part

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
PARTS = "parts"
CHECKPOINTS = "checkpoints"
CANARIES = "canaries"
QUARANTINE = "quarantine"
COLLECTED = "collected"

T = TypeVar("T")


class RunNameError(ValueError):
    """A run name that can not name a folder."""


class OwedAgainError(RuntimeError):
    """Rows were found damaged, were put into quarantine, and are owed again."""


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
            raise JournalError(
                f"{missing} is missing, although the journal refers to it; "
                f"`lpfloop repair {self.folder.name}` says what is lost and makes it owed again"
            )
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
        for name in TABLES.values():
            make_folder(part_folder(self.folder, name))
        for name in (CHECKPOINTS, "work", "logs", QUARANTINE):
            make_folder(self.folder / name)
        reach("lake.recover")
        # Not work/: a trainer that outlived its daemon may still write there.
        for name in (PARTS, CHECKPOINTS, CANARIES, QUARANTINE):
            sweep(self.folder / name)
        self._giving_up = threading.Event()
        self._committer = Committer(journal)

    def commit(
        self,
        unit: str,
        tables: Mapping[type[Row], Sequence[Row]],
        telemetry: Mapping[str, float],
    ) -> None:
        """Hand over a unit's rows: they are sealed, one part a table, and the unit marked done."""
        self._committer.put(Finished(unit=unit, tables=tables, telemetry=telemetry))

    def settled(self) -> list[str]:
        """Return the units that became durable since the last call."""
        return self._committer.settled()

    def flush(self) -> None:
        """Wait until every unit handed over is durable."""
        self._committer.flush()

    def when_there_is_room(self, action: Callable[[], T]) -> T:
        """Do what writes and can be done again; on a full disk, wait until there is room."""
        return when_there_is_room(action, self._giving_up)

    def rows(self, row_type: type[R], unit: str) -> list[R]:
        """Return the committed rows of one unit, their bytes verified.

        Raises:
            JournalError: if the unit has not committed rows of that kind.
            OwedAgainError: if they are missing or altered: the unit is owed again.
        """
        path = self._path(row_type, unit)
        try:
            return from_table(row_type, read_part(path, path.stem))
        except DamagedError as error:
            raise self._lost(unit, path, error) from error

    def verified_path(self, row_type: type[Row], unit: str) -> Path:
        """Return the Parquet file that holds a unit's rows, its bytes verified.

        Raises:
            OwedAgainError: if it is missing or altered: the unit is owed again.
        """
        path = self._path(row_type, unit)
        try:
            check_part(path)
        except DamagedError as error:
            raise self._lost(unit, path, error) from error
        return path

    def verified_checkpoint(self, checkpoint_id: str) -> Path:
        """Return the folder of a published checkpoint, every byte verified.

        Raises:
            OwedAgainError: if it is damaged: the training is owed again.
            JournalError: if its weights were given up.
        """
        folder = self.folder / CHECKPOINTS / checkpoint_id
        if f"{CHECKPOINTS}/{checkpoint_id}" in collected(self.journal):
            raise JournalError(f"the weights of {folder} were given up by `lpfloop gc --keep`")
        try:
            check_folder(folder)
        except DamagedError as error:
            raise self._lost(self._trained(checkpoint_id), folder, error) from error
        return folder

    def close(self) -> None:
        """Make durable what was handed over, close the journal and let the run go."""
        self._giving_up.set()
        self._committer.close()
        self.journal.close()

    def _path(self, row_type: type[Row], unit: str) -> Path:
        table = TABLES[row_type]
        sha256 = self.journal.part(unit, table)
        if sha256 is None:
            raise JournalError(f"unit {unit} has committed no {table}")
        return part_path(self.folder, table, sha256)

    def _trained(self, checkpoint_id: str) -> str:
        """Return the unit that published a checkpoint."""
        for part in self.journal.parts(table="checkpoints"):
            path = part_path(self.folder, part.table, part.sha256)
            found = pl.read_parquet(path, columns=["checkpoint_id"])["checkpoint_id"]
            if checkpoint_id in found:
                return part.unit
        raise JournalError(f"no unit has published checkpoint {checkpoint_id}")

    def _lost(self, unit: str, path: Path, error: DamagedError) -> OwedAgainError:
        """Put what is damaged aside and make its unit owed again."""
        return self.when_there_is_room(lambda: lose(self.journal, unit, path, str(error)))


def lose(journal: Journal, unit: str, path: Path, reason: str) -> OwedAgainError:
    """Put a damaged file or folder into quarantine, and make its unit owed again."""
    if path.exists():
        quarantine(path, journal.folder / QUARANTINE)
    journal.lose(unit)
    journal.record("damaged", {"unit": unit, "path": str(path), "reason": reason})
    return OwedAgainError(f"{reason}; unit {unit} is owed again")


def collected(journal: Reader) -> frozenset[str]:
    """Return the places of checkpoints whose weights were given up (`lpfloop gc`)."""
    return frozenset(str(place) for place in journal.events(COLLECTED))


def part_path(folder: Path, table: str, sha256: str) -> Path:
    """Return where a sealed part lies."""
    return part_folder(folder, table) / f"{sha256}.parquet"
