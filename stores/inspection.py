# pyright: basic
"""Inspecting a run: finding files that the journal refers to and that are missing or altered.

Every sealed part and every published checkpoint is checked for presence and size; a deep inspection
hashes its bytes, and those of canaries. A repair quarantines damaged files and makes exactly their
units owed again.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .canaries import altered_canaries
from .journal import Journal
from .journal_reader import Part, Reader
from .lake import PACKS, PARTS, collected, lose
from .objects import Objects, objects_of
from .packs import MODELS, path_of, trained
from .sealed import MANIFEST, DamagedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file or folder that differs from what was committed, and the unit whose rows it holds."""

    unit: str
    iteration: int
    stage: str
    chunk: int
    path: Path
    reason: str


def damages(journal: Reader, *, deep: bool) -> list[Damage]:
    """Return files that are missing or of the wrong size; with `deep`, also altered ones."""
    return list(_damages(journal, deep=deep))


def repair(journal: Journal) -> list[Damage]:
    """Quarantine what is damaged and make its units owed again; return the damages."""
    found = damages(journal, deep=True)
    for damage in found:
        lose(journal, damage.unit, damage.path, damage.reason)
    return found


def _damages(journal: Reader, *, deep: bool) -> Iterator[Damage]:
    gone, objects, parts = collected(journal), objects_of(journal.folder), journal.parts()
    faults = _file_faults(journal, objects, parts, deep=deep)
    for part in parts:
        path = path_of(journal.folder, part)
        reason = faults.get(path)
        if reason is not None:
            yield _damage(part, path, reason)
        elif part.table in MODELS:
            for place in trained(journal.folder, part)["path"]:
                folder = journal.folder / place
                reason = None if place in gone else _folder_fault(objects, folder, deep=deep)
                if reason is not None:
                    yield _damage(part, folder, reason)
                if deep:
                    for canary, said in altered_canaries(journal, folder.name):
                        yield _damage(part, canary, said)


def _damage(part: Part, path: Path, reason: str) -> Damage:
    return Damage(
        unit=part.unit,
        iteration=part.iteration,
        stage=part.stage,
        chunk=part.chunk,
        path=path,
        reason=reason,
    )


def _file_faults(
    journal: Reader, objects: Objects, parts: Sequence[Part], *, deep: bool
) -> dict[Path, str]:
    """Return what is wrong with files of rows; those that are as they should be are left out."""
    packs, folder = journal.packs(), journal.folder
    sizes = {path_of(folder, p): p.size if p.pack is None else packs[p.pack] for p in parts}
    there = {**objects.sizes(folder / PARTS), **objects.sizes(folder / PACKS)}
    faults = {
        path: said
        for path, size in sizes.items()
        if (said := _size_fault(objects, path, there.get(path), size))
    }
    if deep:
        whole = [path for path in sizes if path not in faults]
        with ThreadPoolExecutor(objects.at_once) as pool:
            said = pool.map(lambda path: _said(lambda: objects.check_part(path)), whole)
            faults |= {path: fault for path, fault in zip(whole, said, strict=True) if fault}
    return faults


def _size_fault(objects: Objects, path: Path, found: int | None, size: int) -> str | None:
    if found is None:
        return f"{objects.at(path)} is missing"
    return None if found == size else f"{objects.at(path)} has {found} bytes instead of {size}"


def _folder_fault(objects: Objects, folder: Path, *, deep: bool) -> str | None:
    if folder / MANIFEST not in objects.sizes(folder):
        return f"{objects.at(folder)} is missing or has no {MANIFEST}"
    return _said(lambda: objects.check_folder(folder)) if deep else None


def _said(check: Callable[[], None]) -> str | None:
    """Return the message with which a check fails, or None."""
    try:
        check()
    except DamagedError as error:
        return str(error)
    return None
