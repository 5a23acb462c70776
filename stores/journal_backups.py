"""Backups of a run's journal, and the repair of a damaged one.

A backup is a copy of the whole journal at one moment, named by its number and the SHA-256 of its
bytes; the last two are kept. If the end of the journal's log is damaged, SQLite goes back to the
last commit before the damage. Otherwise the last backup replaces the journal. Later commits are
pending again.
"""

import secrets
from contextlib import closing, suppress
from pathlib import Path

from .durable import link, make_folder, publish_file, quarantine, remove, write_file
from .journal import BACKUPS, Journal
from .journal_file import (
    COMMITS,
    JOURNAL,
    DamagedJournalError,
    check_journal,
    journal_copy,
    open_journal,
)
from .lock import LockedError, acquire, release, unread
from .sealed import file_sha256

KEPT = 2
QUARANTINE = "quarantine"


def back_up(journal: Journal) -> None:
    """Keep a copy of the journal as it is now, if it changed since the last one.

    Raises:
        FencedError: if this process was overtaken.
    """
    revision = journal.revision
    if revision == journal.backed_up:
        return
    journal.check_epoch()
    folder = make_folder(journal.folder / BACKUPS)
    before = _backups(journal.folder)
    with journal_copy(journal.folder) as copy:
        name = file_sha256(copy)
        if not before or _name_of(before[-1]) != name:
            number = int(before[-1].name.partition("-")[0]) + 1 if before else 1
            publish_file(copy, folder / f"{number:08}-{name}.sqlite")
            for old in before[: 1 - KEPT]:
                remove(old)
    journal.backed_up = revision


def mend(folder: Path) -> str | None:
    """Repair a damaged journal; return a description of the repair, or None if it was intact.

    The damaged files go into `quarantine/`.

    Raises:
        LockedError: if another process holds the run, or reads it.
        DamagedJournalError: if the journal and all backups are damaged.
    """
    lock = acquire(folder)
    try:
        check_journal(folder)
    except DamagedJournalError as error:
        with unread(folder) as free:
            if not free:
                raise LockedError(f"run {folder.name} is being read by another process") from error
            message = _cut(folder) or _restore(folder)
        if message is None:
            raise DamagedJournalError(
                f"{error}, but no backup of it is whole: start another run with --run NAME"
            ) from error
        check_journal(folder)
        return message
    finally:
        release(lock)
    return None


def _cut(folder: Path) -> str | None:
    """Go on from the last intact commit in the log; None if more is damaged than the log."""
    try:
        check_journal(folder, counted=False)
    except DamagedJournalError:
        return None
    log = folder / f"{JOURNAL}-wal"
    if log.exists():
        write_file(_aside(folder, log), log.read_bytes(), "mended")
    with closing(open_journal(folder, writable=True, counted=False)) as opened:
        opened.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    _forget_count(folder)
    return "its log is cut at the damaged place: what was committed after that is pending again"


def _restore(folder: Path) -> str | None:
    """Replace the journal by the newest intact backup."""
    whole = (path for path in reversed(_backups(folder)) if file_sha256(path) == _name_of(path))
    backup = next(whole, None)
    if backup is None:
        return None
    for path in (folder / f"{JOURNAL}-wal", folder / f"{JOURNAL}-shm"):
        if path.exists():
            quarantine(path, folder / QUARANTINE)
    if (folder / JOURNAL).exists():
        link(folder / JOURNAL, _aside(folder, folder / JOURNAL))
    write_file(folder / JOURNAL, backup.read_bytes(), "mended")
    # Last: if a kill comes before, the journal is recognised as damaged by the commit count.
    _forget_count(folder)
    return "its last backup has taken its place: what was committed after it is pending again"


def _aside(folder: Path, path: Path) -> Path:
    return make_folder(folder / QUARANTINE) / f"{secrets.token_hex(4)}-{path.name}"


def _forget_count(folder: Path) -> None:
    with suppress(FileNotFoundError):
        remove(folder / COMMITS)


def _backups(folder: Path) -> list[Path]:
    """Return the backups, the oldest first."""
    return sorted((folder / BACKUPS).glob("*-*.sqlite"))


def _name_of(path: Path) -> str:
    return path.stem.partition("-")[2]
