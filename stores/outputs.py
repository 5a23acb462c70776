# pyright: basic
"""Files and folders of the user's commands: whole under their name, or absent.

They are outside the lake and can be made again, so they are written as a draft and moved into place
at the end; an existing target stays until then. Like the lake, they are readable only by their
owner.

A folder that an export wrote holds a mark with the names of its files. Only such a folder may be
replaced, and only while it holds nothing else; a lake and the current folder never are.
"""

import csv
import json
import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .durable import sync_file, sync_folder, temporary_name
from .journal_reader import JOURNAL
from .sealed import check_folder
from .spreadsheet_cells import guard_cell

MARK = ".lpfloop-export"
"""The file with the names of an export's files; hidden, so that loaders of data sets ignore it."""
Record = Mapping[str, Any]
ROW_GROUP = 20_000
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


class TargetError(ValueError):
    """A target that cannot be written to, or that exists already."""

    code = "LPF-103"


def folder_target(target: Path, *, force: bool) -> Path:
    """Return the path of a new folder, with links resolved.

    Raises:
        TargetError: if the target exists, unless it may be replaced and `force` is set.
    """
    place = _outside_lakes(target)
    if not os.path.lexists(place):
        return place
    if not place.is_dir():
        raise TargetError(f"{target} exists and is not a folder: choose another place")
    if Path.cwd().is_relative_to(place):
        raise TargetError(
            f"{target} is the current folder, or holds it, and cannot be replaced: "
            "choose another place"
        )
    if not force:
        raise TargetError(
            f"{target} is there already: choose another place, or add --force if it is an "
            "earlier export"
        )
    _require_replaceable(place, target)
    return place


def file_target(target: Path, *, force: bool) -> Path:
    """Return the path of a new file, with links resolved.

    Raises:
        TargetError: if the target exists, unless it is a regular file and `force` is set.
    """
    place = _outside_lakes(target)
    if os.path.lexists(place) and not place.is_file():
        raise TargetError(f"{target} is not a regular file: choose another name")
    if os.path.lexists(place) and not force:
        raise TargetError(f"{target} is there already: choose another name, or add --force")
    return place


def _outside_lakes(target: Path) -> Path:
    """Resolve links; refuse a lake, and any path inside one."""
    try:
        place = target.resolve()
    except (OSError, RuntimeError) as error:
        raise TargetError(f"{target} cannot be used: {error}") from error
    for folder in (place, *place.parents):
        if any((folder / "runs").glob(f"*/{JOURNAL}")) or os.path.lexists(folder / JOURNAL):
            raise TargetError(f"{target} is inside a lake, {folder}: choose a place outside of it")
    return place


def _require_replaceable(folder: Path, target: Path) -> None:
    """Refuse a folder that is neither empty nor an export with nothing else in it."""
    if folder.is_symlink():
        raise TargetError(f"{target} became a link: choose another place")
    try:
        written = {MARK, *(folder / MARK).read_text(encoding="utf-8").splitlines()}
    except (OSError, UnicodeDecodeError):
        written = set[str]()
        if any(folder.iterdir()):
            raise TargetError(
                f"{target} was not written by lpfloop and is not replaced: choose another "
                "place, or remove it yourself"
            ) from None
    for path in _below(folder):
        name = path.relative_to(folder).as_posix()
        ours = name in written and path.is_file() and not path.is_symlink()
        if not ours or path.name == JOURNAL:
            raise TargetError(
                f"{target} holds {name}, which its export did not write, and is not replaced: "
                "move that away, or choose another place"
            )


def _below(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder, at any depth: files, links, and empty folders."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and any(path.iterdir()):
            yield from _below(path)
        else:
            yield path


@contextmanager
def output_folder(target: Path, *, force: bool) -> Generator[Path]:
    """Yield a draft folder that becomes `target` if the body succeeds, and is removed if not.

    With `force` it replaces an earlier one, if that holds no other files.

    Raises:
        TargetError: if the target is there and may not be replaced, or cannot be written.
    """
    with _as_sentence(target):
        place = folder_target(target, force=force)
        draft = temporary_name(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir(mode=PRIVATE_FOLDER)
    try:
        yield draft
        _seal(draft)
        with _as_sentence(target):
            _place(draft, place, target, force=force)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def output_copy(
    source: Path, names: Iterable[str], target: Path, *, force: bool, identity: str | None = None
) -> None:
    """Copy files of the folder `source` into the new folder `target`: all of them, or nothing.

    The copy of a published folder is proved by `identity`, the hash of its manifest.

    Raises:
        TargetError: if the target is there and may not be replaced, or cannot be written.
        DamagedError: if the copy differs from the published folder.
    """
    with output_folder(target, force=force) as draft:
        with _as_sentence(target):
            for name in names:
                (draft / name).parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
                shutil.copyfile(source / name, draft / name)
        if identity is not None:
            check_folder(draft, identity)


def output_files(target: Path, files: Mapping[str, bytes], *, force: bool) -> None:
    """Write files of these names into the new folder `target`: all of them, or nothing.

    Raises:
        TargetError: if the target is there and may not be replaced, or cannot be written.
    """
    with output_folder(target, force=force) as draft, _as_sentence(target):
        for name, data in files.items():
            (draft / name).write_bytes(data)


def output_file(target: Path, data: bytes, *, force: bool) -> None:
    """Write a file whole under its name, or leave an existing one unchanged.

    Raises:
        TargetError: if it cannot be written, or is there already and not `force`.
    """
    with _as_sentence(target):
        draft = temporary_name(file_target(target, force=force))
        try:
            draft.touch(PRIVATE_FILE, exist_ok=False)
            draft.write_bytes(data)
            sync_file(draft)
            draft.replace(file_target(target, force=force))
        finally:
            with suppress(OSError):
                draft.unlink()


@contextmanager
def _as_sentence(target: Path) -> Generator[None]:
    """Turn errors of the file system into one sentence."""
    try:
        yield
    except OSError as error:
        raise TargetError(f"{target} cannot be written: {error.strerror}") from error


def _seal(draft: Path) -> None:
    """Write the mark of a draft, and make all of it durable and private."""
    files = [path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file()]
    (draft / MARK).write_text("".join(f"{name}\n" for name in sorted(files)), encoding="utf-8")
    for path in draft.rglob("*"):
        if path.is_dir():
            path.chmod(PRIVATE_FOLDER)
        else:
            sync_file(path)


def _place(draft: Path, place: Path, target: Path, *, force: bool) -> None:
    old = draft.with_name(f"{draft.name}.old")
    if force and place.is_dir():
        place.rename(old)
    try:
        if old.exists():
            # The folder has another name now, so no file can be added to it.
            _require_replaceable(old, target)
        draft.rename(place)
    except BaseException:
        if os.path.lexists(old):
            old.rename(place)
        raise
    sync_folder(place.parent)
    shutil.rmtree(old, ignore_errors=True)


class Sink:
    """A file that takes rows of a schema: here as JSON lines, with the fields of the rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._names = schema.names
        self._file = path.open("w", encoding="utf-8", newline="")

    def put(self, row: Record) -> None:
        """Add a row."""
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class Csv(Sink):
    """A header and one row a line; lists and objects are written as JSON."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        super().__init__(path, schema)
        self._writer = csv.writer(self._file)
        self._writer.writerow(self._names)

    def put(self, row: Record) -> None:
        """Add a row."""
        self._writer.writerow([_cell(row[name]) for name in self._names])


class Parquet(Sink):
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


SINKS: Mapping[str, type[Sink]] = {".jsonl": Sink, ".csv": Csv, ".parquet": Parquet}


def open_sink(path: Path, schema: pa.Schema) -> Sink:
    """Open a file for rows of a schema; the suffix of its name chooses the format."""
    return SINKS[path.suffix](path, schema)


def _cell(value: object) -> object:
    match value:
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
        case str():
            return guard_cell(value)
        case _:
            return value
