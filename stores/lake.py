# pyright: basic
"""A lake: a folder of runs. A run is its journal, the files it refers to, and its checkpoints.

`RunReader` reads, `RunWriter` (one process at a time) commits. Layout of `LAKE/runs/NAME`:
journal.sqlite, journal.commits (how many commits it has), backups/ (of the journal),
files/TABLE/SHA256.parquet (rows of finished stages), checkpoints/SHA256/, reward_models/SHA256/,
own/ (copies of the user's code), quarantine/ (damaged files), work/ (unpublished), logs/,
canaries/SHA256/ (the proofs of trained weights; the journal holds their hashes as facts).
"""

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import polars as pl

from .address import run_argument
from .committer import Committer, Finished, encode_units, if_there_is_room, when_there_is_room
from .durable import make_folder, sweep, write_file
from .failpoints import reach
from .journal import FencedError, Journal, KeptSlice
from .journal_backups import QUARANTINE, back_up
from .journal_reader import (
    FILES,
    JOURNAL,
    Downstream,
    JournalError,
    Part,
    Reader,
    RowFile,
    file_path,
)
from .keys import Json
from .objects import objects_of
from .schemas import TABLES, ArrowTable, R, Row, RowsByType, from_table
from .sealed import DamagedError
from .stage_files import MODELS, REMEDY, TableRows, UnitRows, holding, scan, scan_parts
from .verified import Some, write_rows

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
CHECKPOINTS, REWARD_MODELS = "checkpoints", "reward_models"
OWN = "own"
COLLECTED = "collected"

T = TypeVar("T")


class RunNameError(ValueError):
    """A run name that is not allowed."""

    code = "LPF-107"


class PendingAgainError(RuntimeError):
    """Damaged rows were found and quarantined; their unit is pending again."""

    code = "LPF-214"


def run_folder(lake: Path, name: str) -> Path:
    """Return the folder of the run `name`.

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
    """The committed rows of a run, as Polars lazy frames; their files stay while it is open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Reader(folder)

    def scan(
        self,
        table: str,
        *,
        iteration: int | None = None,
        columns: Collection[str] | None = None,
        stages: Callable[[str], bool] = lambda _: True,
    ) -> pl.LazyFrame:
        """Return the rows of a table that are committed now, with its columns or some of them.

        They come stage by stage, of those `stages`; within a stage the order is not fixed, as
        files are sorted by prompt: sort the result if needed. Files are verified first, by column.
        """
        files = [file for file in self._present(table, iteration) if stages(file.stage)]
        return scan(self.folder, table, files, Some.of(columns))

    def about(
        self, prompt_id: str, tables: Sequence[str], *, iteration: int | None = None
    ) -> list[pl.LazyFrame]:
        """Return the committed rows of some tables that are about one prompt, quickly."""
        present = [self._present(table, iteration) for table in tables]
        return [
            scan(self.folder, table, files, Some(prompt_id=prompt_id))
            for table, files in zip(tables, holding(self.folder, present, prompt_id), strict=True)
        ]

    def table_rows(self, table: str, *, iteration: int | None = None) -> TableRows:
        """Return the rows of `scan` for another engine, which finds out where they lie."""
        return TableRows(self.folder, table, self._present(table, iteration))

    def scan_parts(self, table: str, parts: Sequence[Part]) -> pl.LazyFrame:
        """Return the rows of some committed parts of a table, in the order given."""
        return scan_parts(self.journal, table, parts)

    def _present(self, table: str, iteration: int | None = None) -> list[RowFile]:
        return self.journal.files(table=table, iteration=iteration, data=True)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()


class RunWriter:
    """The one process that adds rows to a run; its methods may be called from several threads.

    `on_settled` is called with units that have become durable, in a thread of the store.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.folder = journal.folder
        for name in (FILES, *MODELS, "work", "logs", QUARANTINE):
            make_folder(self.folder / name)
        reach("lake.recover")
        # Not work/: a trainer that outlived its daemon may still write there.
        for name in (FILES, *MODELS, CANARIES, OWN, QUARANTINE):
            sweep(self.folder / name)
        self._giving_up = threading.Event()
        self._units = UnitRows(journal)
        self._objects = objects_of(self.folder)
        self.on_settled: Callable[[Sequence[str]], None] = lambda _: None
        self._committer = Committer(journal, self._settle)

    def commit(
        self,
        unit: str,
        tables: RowsByType,
        telemetry: Mapping[str, float],
        served: Sequence[Mapping[str, Json]] = (),
    ) -> None:
        """Hand over a unit's rows: they are committed, and the unit marked done."""
        self._committer.put(Finished(unit=unit, tables=tables, telemetry=telemetry, served=served))

    def keep(self, slice_: KeptSlice) -> None:
        """Hand over the replies to a part of a unit's requests."""
        self._committer.put(slice_)

    def amend(
        self,
        unit: str,
        result: Finished,
        why: Mapping[str, Json],
    ) -> Downstream:
        """Replace a done unit by a result under another key; durable on return (`Journal.amend`).

        Raises:
            JournalError: if the unit is not done.
        """
        (rows,) = encode_units([result])
        return self.when_there_is_room(lambda: self.journal.amend(unit, rows, why))

    def give_up(self) -> None:
        """Stop all waits for room on the disk, because the run ends."""
        self._giving_up.set()
        self._committer.give_up()

    def flush(self) -> None:
        """Wait until every unit handed over is durable."""
        self._committer.flush()

    def seal(self) -> None:
        """Wait until the rows of finished stages are in files, if there is room for them."""
        self._committer.seal()

    def when_there_is_room(self, action: Callable[[], T]) -> T:
        """Run a repeatable write; on a full disk, wait for room and run it again."""
        return when_there_is_room(action, self._giving_up)

    def rows(self, row_type: type[R], unit: str) -> list[R]:
        """Return the committed rows of one unit, their bytes verified.

        Raises:
            JournalError: if the unit has not committed rows of that kind.
            PendingAgainError: if they are missing or altered: the unit is pending again.
        """
        return from_table(row_type, self.table(row_type, unit))

    def table(self, row_type: type[Row], unit: str) -> ArrowTable:
        """Return the committed rows of one unit as a table, their bytes verified.

        Raises:
            JournalError: if the unit has not committed rows of that kind.
            PendingAgainError: if they are missing or altered: the unit is pending again.
        """
        table = TABLES[row_type]
        try:
            return self.when_there_is_room(lambda: self._units.read(unit, table))
        except DamagedError as error:
            raise self._file_lost(self.journal.parts_of(unit)[table], error) from error

    def verified_path(self, row_type: type[Row], unit: str) -> Path:
        """Return a Parquet file that holds a unit's rows alone, made of verified bytes.

        Raises:
            JournalError: if the unit has not committed rows of that kind.
            PendingAgainError: if they are missing or altered: the unit is pending again.
        """
        rows, folder = self.table(row_type, unit), self.folder / "work" / "unpacked"
        return self.when_there_is_room(lambda: write_rows(make_folder(folder), rows))

    def verified_model(self, table: str, name: str) -> Path:
        """Return the folder of a published checkpoint or reward model, every byte verified.

        `table` is `checkpoints` or `reward_models`.

        Raises:
            PendingAgainError: if it is damaged: its training is pending again.
            DamagedError: if it is whole, and only its canary was altered.
            JournalError: if its weights were removed by `lpfloop lake gc`.
        """
        folder = self.folder / table / name
        if f"{table}/{name}" in removed_checkpoints(self.journal):
            raise JournalError(f"the weights of {folder} were removed by `lpfloop lake gc --keep`")
        try:
            fetched = self.when_there_is_room(lambda: self._fetch_model(folder))
        except DamagedError as error:
            raise self._quarantine(self._publishing_unit(table, name), folder, error) from error
        require_canaries(self.journal, name)
        return fetched

    def publish(self, path: Path) -> None:
        """Publish a finished file or folder of the run's folder, such as a checkpoint."""
        self.when_there_is_room(lambda: self._objects.publish(path))

    def keep_own(self, name: str, source: bytes) -> None:
        """Keep a copy of the user's source file, unless it is kept already."""
        path = self.folder / OWN / name

        def keep() -> None:
            make_folder(path.parent)
            write_file(path, source)
            self._objects.publish(path)

        if not path.exists():
            self.when_there_is_room(keep)

    def back_up(self) -> None:
        """Keep a copy of the journal, with the rows of open stages, unless the disk is full."""
        self._committer.seal()
        self._back_up()

    def close(self) -> None:
        """Make all handed-over units durable, close the journal and release its lock."""
        self._giving_up.set()
        self._committer.close()
        try:
            # An overtaken process must not write.
            with suppress(FencedError):
                self._back_up()
        finally:
            self.journal.close()

    def _back_up(self) -> None:
        if_there_is_room(lambda: back_up(self.journal))

    def _settle(self, units: Sequence[str]) -> None:
        self.on_settled(units)

    def _fetch_model(self, model: Path) -> Path:
        """Return a model's local folder; its canaries are fetched, too."""
        for path in self._objects.sizes(self.folder / CANARIES / model.name):
            if not path.exists():
                self._objects.local_file(path)
        return self._objects.local_folder(model)

    def _file_lost(self, part: Part, error: DamagedError) -> PendingAgainError:
        """Make every unit with rows in the damaged file pending again."""
        assert part.file is not None  # noqa: S101 -- damage of the journal has its own error
        path = file_path(self.folder, part.table, part.file)
        self._units.forget(part.file)
        for other in self.journal.parts_in(part.file):
            if other.unit != part.unit:
                self._quarantine(other.unit, path, error)
        return self._quarantine(part.unit, path, error)

    def _publishing_unit(self, table: str, name: str) -> str:
        """Return the unit that published a model."""
        for part in self.journal.parts(table=table):
            if name in self._units.read(part.unit, table)[MODELS[table]].to_pylist():
                return part.unit
        raise JournalError(f"no unit has published {table}/{name}")

    def _quarantine(self, unit: str, path: Path, error: DamagedError) -> PendingAgainError:
        """Quarantine a damaged file or folder and make its unit pending again."""
        return self.when_there_is_room(lambda: lose(self.journal, unit, path, str(error)))


def lose(journal: Journal, unit: str, path: Path, reason: str) -> PendingAgainError:
    """Put a damaged file or folder into quarantine, and make its unit pending again.

    Raises:
        TakenOverError: if another machine has taken the run over: it may be making the unit again.
        OutOfReachError: if the bucket does not answer.
    """
    if journal.keeper is not None:
        journal.keeper.require_head()
    objects_of(journal.folder).quarantine(path, journal.folder / QUARANTINE)
    journal.lose(unit)
    journal.record("damaged", {"unit": unit, "path": str(path), "reason": reason})
    return PendingAgainError(f"{reason}; unit {unit} is pending again")


def removed_checkpoints(journal: Reader) -> frozenset[str]:
    """Return the places of checkpoints whose weights were removed (`lpfloop lake gc`)."""
    return frozenset(str(place) for place in journal.events(COLLECTED))


CANARIES = "canaries"


def remember_canary(journal: Journal, path: Path, sha256: str) -> None:
    """Note the hash of a proof."""
    journal.set_meta([(_fact(path), sha256)])


def canary_sha256(journal: Reader, path: Path) -> str | None:
    """Return the hash that a proof must have, if the journal has it."""
    return journal.meta(_fact(path))


def altered_canaries(journal: Reader, model: str) -> Iterator[tuple[Path, str]]:
    """Yield the altered proofs of a model, each with a description of the damage."""
    objects = objects_of(journal.folder)
    for path in objects.sizes(journal.folder / CANARIES / model):
        expected = canary_sha256(journal, path)
        if expected is not None and objects.sha256(path) != expected:
            yield path, f"{objects.at(path)} was altered: the journal has another hash"


def require_canaries(journal: Reader, model: str) -> None:
    """Refuse altered proofs of a model.

    Raises:
        DamagedError: naming the file.
    """
    for _, reason in altered_canaries(journal, model):
        raise DamagedError(
            f"{reason}; `lpfloop lake repair {run_argument(journal.folder)}` {REMEDY}"
        )


def _fact(path: Path) -> str:
    return "/".join((CANARIES, *path.parts[-2:]))
