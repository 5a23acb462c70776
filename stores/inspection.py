# pyright: basic
"""Inspecting a run: finding files that the journal refers to and that are missing or altered.

Every stage file and every published checkpoint is checked for presence and size; a deep inspection
hashes its bytes, and the canaries'. A repair quarantines damaged files and makes exactly their
units pending again.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .journal import Journal
from .journal_reader import FILES, Part, Reader, file_path
from .lake import altered_canaries, lose, removed_checkpoints
from .objects import Objects, objects_of
from .sealed import MANIFEST, DamagedError
from .stage_files import MODELS, read_trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file or folder that differs from the committed one, and the unit whose rows it holds."""

    unit: str
    iteration: int
    stage: str
    chunk: int
    path: Path
    reason: str


def damages(journal: Reader, *, deep: bool) -> list[Damage]:
    """Return files that are missing or of the wrong size; with `deep`, also altered ones."""
    return list(_damages(journal, deep=deep))


def repair(journal: Journal, *, deep: bool = True) -> list[Damage]:
    """Quarantine damaged files and make their units pending again; return the `damages`."""
    found = damages(journal, deep=deep)
    for damage in found:
        lose(journal, damage.unit, damage.path, damage.reason)
    return found


def _damages(journal: Reader, *, deep: bool) -> Iterator[Damage]:
    gone, objects = removed_checkpoints(journal), objects_of(journal.folder)
    faults = _file_faults(journal, objects, deep=deep)
    for part in journal.parts():
        path = part.file and file_path(journal.folder, part.table, part.file)
        reason = faults.get(path) if path else None
        if path and reason is not None:
            yield _damage(part, path, reason)
        elif part.table in MODELS:
            for place in read_trained(journal, part)["path"]:
                folder = journal.folder / place
                reason = None if place in gone else _folder_fault(objects, folder, deep=deep)
                if reason is not None:
                    yield _damage(part, folder, reason)
                if deep:
                    for canary, problem in altered_canaries(journal, folder.name):
                        yield _damage(part, canary, problem)


def _damage(part: Part, path: Path, reason: str) -> Damage:
    return Damage(
        unit=part.unit,
        iteration=part.iteration,
        stage=part.stage,
        chunk=part.chunk,
        path=path,
        reason=reason,
    )


def _file_faults(journal: Reader, objects: Objects, *, deep: bool) -> dict[Path, str]:
    """Return the faults of files of rows; intact files are left out."""
    folder = journal.folder
    sizes = {file.path(folder): file.size for file in journal.files() if file.sealed}
    there = objects.sizes(folder / FILES)
    faults = {
        path: problem
        for path, size in sizes.items()
        if (problem := _size_fault(objects, path, there.get(path), size))
    }
    if deep:
        whole = [path for path in sizes if path not in faults]
        with ThreadPoolExecutor(objects.at_once) as pool:
            problem = pool.map(lambda path: _failure_of(lambda: objects.check_part(path)), whole)
            faults |= {path: fault for path, fault in zip(whole, problem, strict=True) if fault}
    return faults


def _size_fault(objects: Objects, path: Path, found: int | None, size: int) -> str | None:
    if found is None:
        return f"{objects.at(path)} is missing"
    return None if found == size else f"{objects.at(path)} has {found} bytes instead of {size}"


def _folder_fault(objects: Objects, folder: Path, *, deep: bool) -> str | None:
    if folder / MANIFEST not in objects.sizes(folder):
        return f"{objects.at(folder)} is missing or has no {MANIFEST}"
    return _failure_of(lambda: objects.check_folder(folder)) if deep else None


def _failure_of(check: Callable[[], None]) -> str | None:
    """Return the message with which a check fails, or None."""
    try:
        check()
    except DamagedError as error:
        return str(error)
    return None
