"""Backups of a run's journal, and mending a damaged one.

A backup is a copy of the whole journal at one moment, named by its number and the SHA-256 of its
bytes; the last two are kept. Most damage costs nothing: an altered page is taken from a backup if
that one holds it as it was. Only if it changed since does the whole backup take the journal's
place; what was committed after it is owed again then.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from .durable import link, make_folder, quarantine, remove, write_file
from .journal_held import BACKUPS, Held
from .journal_log import Log
from .journal_opening import check_journal
from .journal_pages import JOURNAL, PAGES, DamagedJournalError, PageHashes
from .lock import LockedError, acquire, release, unread

KEPT = 2
QUARANTINE = "quarantine"


def back_up(journal: Held) -> None:
    """Keep a copy of the journal as it is now, if it changed since the last one."""
    if not journal.changed:
        return
    folder = make_folder(journal.folder / BACKUPS)
    with journal.unchanging() as blocks:
        name = _sha256(blocks())
        before = _backups(journal.folder)
        if not before or _named(before[-1]) != name:
            number = int(before[-1].name.partition("-")[0]) + 1 if before else 1
            write_file(folder / f"{number:08}-{name}.sqlite", blocks(), "backup")
            for old in before[: 1 - KEPT]:
                remove(old)
    journal.changed = False


def mend(folder: Path) -> str | None:
    """Make a damaged journal whole; return what was done, or None if it was whole.

    The damaged files go into `quarantine/`.

    Raises:
        LockedError: if another process holds the run, or reads it.
        DamagedJournalError: if it is damaged, and no backup is whole.
    """
    lock = acquire(folder)
    try:
        check_journal(folder)
    except DamagedJournalError as error:
        with unread(folder) as free:
            if not free:
                raise LockedError(f"run {folder.name} is being read by another process") from error
            return _mended(folder, error)
    finally:
        release(lock)
    return None


def _mended(folder: Path, error: DamagedJournalError) -> str:
    """Try first what loses least."""
    for way in (_hashed_again, _patched, _cut, _restored):
        told = way(folder)
        if told is not None:
            check_journal(folder)
            return told
    raise DamagedJournalError(
        f"{error}, but no backup of it is whole: start another run with --run NAME"
    )


def _hashed_again(folder: Path) -> str | None:
    """Let go of damaged hashes, if what they vouch for contradicts itself nowhere."""
    try:
        PageHashes.read(folder)
    except DamagedJournalError:
        quarantine(folder / PAGES, folder / QUARANTINE)
        with suppress(DamagedJournalError):
            check_journal(folder)
            return f"{PAGES} was damaged, and is made again: nothing is lost"
    return None


def _patched(folder: Path) -> str | None:
    """Take the pages that were altered from backups that hold them as they were."""
    known, log = PageHashes.read(folder), Log.read(folder / JOURNAL)
    if known is None or log.fault:
        return None
    altered = known.differing(folder / JOURNAL, log.pages)
    found = {number: _page(folder, known, number) for number in altered}
    pages = {number: page for number, page in found.items() if page is not None}
    if not pages or len(pages) < len(altered):
        return None
    _replace(folder, folder / JOURNAL, known.with_pages(_file(folder), pages))
    return f"altered pages: {len(pages)}; they are as they were, from a backup: nothing is lost"


def _page(folder: Path, known: PageHashes, number: int) -> bytes | None:
    found = (known.page(image, number) for image in _images(folder))
    return next((page for page in found if known.holds(number, page)), None)


def _cut(folder: Path) -> str | None:
    """Let go of what follows a damaged place in the log, if the journal's file is whole."""
    known, log = PageHashes.read(folder), Log.read(folder / JOURNAL)
    if known is None or not log.fault or known.differing(folder / JOURNAL, log.pages):
        return None
    _replace(folder, log.path, log.path.read_bytes()[: log.whole])
    return "its log is cut at the damaged place: what was committed after that is owed again"


def _restored(folder: Path) -> str | None:
    """Let the newest backup that is whole take the journal's place."""
    image = next(_images(folder), None)
    if image is None:
        return None
    known = PageHashes.read(folder)
    if known is not None:
        # Without its log the journal must not pass for whole, should this end here.
        known.write(folder, closed=True)
    for path in (folder / f"{JOURNAL}-wal", folder / f"{JOURNAL}-shm"):
        if path.exists():
            quarantine(path, folder / QUARANTINE)
    PageHashes.of(image).write(folder, closed=True)
    _replace(folder, folder / JOURNAL, image)
    return "its last backup has taken its place: what was committed after it is owed again"


def _file(folder: Path) -> bytes:
    path = folder / JOURNAL
    return path.read_bytes() if path.exists() else b""


def _replace(folder: Path, path: Path, data: bytes) -> None:
    """Put whole bytes in the place of a damaged file, which stays in quarantine."""
    if path.exists():
        link(path, make_folder(folder / QUARANTINE) / f"{secrets.token_hex(4)}-{path.name}")
    write_file(path, data, "mended")


def _backups(folder: Path) -> list[Path]:
    """Return the backups, the oldest first."""
    return sorted((folder / BACKUPS).glob("*-*.sqlite"))


def _images(folder: Path) -> Iterator[bytes]:
    """Yield the backups that are whole, the newest first."""
    for path in reversed(_backups(folder)):
        image = path.read_bytes()
        if hashlib.sha256(image).hexdigest() == _named(path):
            yield image


def _sha256(blocks: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for block in blocks:
        found.update(block)
    return found.hexdigest()


def _named(path: Path) -> str:
    return path.stem.partition("-")[2]
