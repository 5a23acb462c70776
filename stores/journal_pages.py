"""The hash of every page of a run's journal, so that each opening sees whether a bit has changed.

SQLite's file changes only when pages move into it from the write-ahead log, whose frames carry
checksums of their own. The writer does that itself (`Held`): it moves the pages, publishes their
hashes, and only then writes over the log. So at any moment, also after a kill, each page either has
its hash in `journal.pages` or lies whole in the log.
"""

import hashlib
import io
import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat, zip_longest
from pathlib import Path
from typing import BinaryIO, Self

from .address import run_argument
from .durable import write_file
from .journal_log import Log

JOURNAL = "journal.sqlite"
PAGES = "journal.pages"
FORMAT = "lpfloop pages 1"
WIDTH = 16
"""The bytes of a page's hash."""
PAUSE_S = 0.01
BLOCK = 4 << 20
"""Bytes that are read at a time: a journal may be larger than what SQLite makes one piece of."""


class DamagedJournalError(RuntimeError):
    """A journal whose bytes are not those that were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHashes:
    """What each page of the journal's file is, one hash after the other.

    `closed` says that no writer has had the journal open since. If one had, and there is no log,
    another program has moved the log's pages into the file, and the hashes say nothing.
    """

    closed: bool
    size: int
    hashes: bytes

    @classmethod
    def of(cls, image: bytes) -> Self:
        """Hash each page of a database."""
        return cls._of_pages(io.BytesIO(image))

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Hash each page of a database's file."""
        with path.open("rb") as file:
            return cls._of_pages(file)

    @classmethod
    def _of_pages(cls, file: BinaryIO) -> Self:
        size = _page_size(file)
        hashes = b"".join(map(_hash, _pages(file, size)))
        return cls(closed=False, size=size, hashes=hashes)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the hashes beside the journal in a folder; None if there are none.

        Raises:
            DamagedJournalError: if they are damaged.
        """
        try:
            data = (folder / PAGES).read_bytes()
        except FileNotFoundError:
            return None
        body, end = data[:-32], data[-32:]
        head, _, hashes = body.partition(b"\n")
        if hashlib.sha256(body).digest() != end:
            raise DamagedJournalError(damage(folder, PAGES, "its own hash does not match"))
        told = json.loads(head)
        if told["format"] != FORMAT:
            return None
        return cls(closed=told["closed"], size=told["size"], hashes=hashes)

    def write(self, folder: Path, *, closed: bool) -> Self:
        """Publish the hashes beside the journal; return them."""
        head = json.dumps({"format": FORMAT, "closed": closed, "size": self.size})
        body = head.encode() + b"\n" + self.hashes
        write_file(folder / PAGES, body + hashlib.sha256(body).digest(), "pages")
        return replace(self, closed=closed)

    def moved(self, log: Log) -> Self:
        """Return the hashes once the pages in the log have moved into the file.

        A new page that was free again at the end of its transaction was never written: it is zero.
        """
        hashes = bytearray(self.hashes)
        hashes += _hash(bytes(self.size)) * (log.count - len(hashes) // WIDTH)
        for number, page in log.pages.items():
            hashes[(number - 1) * WIDTH : number * WIDTH] = _hash(page)
        return replace(self, hashes=bytes(hashes))

    def differing(self, path: Path, logged: Collection[int] = ()) -> list[int]:
        """Return the pages of a file that are not what they were, but for those in the log."""
        known = (self.hashes[at : at + WIDTH] for at in range(0, len(self.hashes), WIDTH))
        with path.open("rb") if path.exists() else io.BytesIO() as file:
            each = zip_longest(map(_hash, _pages(file, self.size)), known)
            return [
                number
                for number, (found, was) in enumerate(each, 1)
                if found != was and number not in logged
            ]

    def page(self, image: bytes, number: int) -> bytes:
        """Return a page of a database."""
        return image[(number - 1) * self.size : number * self.size]

    def with_pages(self, image: bytes, pages: Mapping[int, bytes]) -> bytes:
        """Return a database with other pages in it, and as many as there must be."""
        count = len(self.hashes) // WIDTH
        return b"".join(
            pages.get(number) or self.page(image, number) for number in range(1, count + 1)
        )

    def holds(self, number: int, page: bytes) -> bool:
        """Whether a page is what it was."""
        return _hash(page) == self.hashes[(number - 1) * WIDTH : number * WIDTH]


def _hash(page: bytes) -> bytes:
    return hashlib.sha256(page).digest()[:WIDTH]


def _page_size(file: BinaryIO) -> int:
    """Return the size of a database's pages, which its first one names; the file is read anew."""
    size = int.from_bytes(file.read(18)[16:]) or 4096
    file.seek(0)
    return 65536 if size == 1 else size


def _pages(file: BinaryIO, size: int) -> Iterator[bytes]:
    while block := file.read(max(BLOCK, size)):
        yield from (block[start : start + size] for start in range(0, len(block), size))


def image_blocks(folder: Path, log: Log) -> Iterator[bytes]:
    """Yield the journal in a folder as the bytes of a database: its file, and over it the log.

    Nothing may move pages from the log into the file meanwhile, but those in `log`.
    """
    with (folder / JOURNAL).open("rb") as file:
        size = _page_size(file)
        count = log.count or os.fstat(file.fileno()).st_size // size
        pages = chain(_pages(file, size), repeat(bytes(size)))
        numbered, logged = zip(range(1, count + 1), pages, strict=False), dict(log.pages)
        whole = (logged.get(number, page) for number, page in numbered)
        while block := b"".join(islice(whole, BLOCK // size)):
            yield block


def verified(database: sqlite3.Connection, folder: Path) -> PageHashes | None:
    """Prove that every page of an open journal is as it was written; return the hashes.

    None if there are none to prove it by: then SQLite has looked for what contradicts itself.

    Raises:
        DamagedJournalError: if a page, the log or the hashes are damaged.
    """
    database.execute("BEGIN")
    try:
        # A query fixes the state that is read; only then may log and hashes be looked at.
        database.execute("SELECT count(*) FROM sqlite_master").fetchall()
        log = whole_log(folder)
        known = PageHashes.read(folder)
        differing = known.differing(folder / JOURNAL, log.pages) if known else []
        if known is not None and not differing:
            return known
        if known is not None and (known.closed or log.size):
            what = f"altered pages: {len(differing)}, the first is page {differing[0]}"
            raise DamagedJournalError(damage(folder, JOURNAL, what))
        require_sound(database, folder)
        return None
    finally:
        database.execute("COMMIT")


def whole_log(folder: Path) -> Log:
    """Return the write-ahead log of the journal in a folder.

    Raises:
        DamagedJournalError: if it is damaged.
    """
    log = Log.read(folder / JOURNAL)
    if log.fault:
        # The writer may have begun it anew while it was read.
        time.sleep(PAUSE_S)
        log = Log.read(folder / JOURNAL)
    if log.fault:
        raise DamagedJournalError(damage(folder, log.path.name, log.fault))
    return log


def require_sound(database: sqlite3.Connection, folder: Path, *, quick: bool = False) -> None:
    """Have SQLite look for what contradicts itself in an open journal.

    Raises:
        DamagedJournalError: with SQLite's first finding.
    """
    kind = "quick_check" if quick else "integrity_check"
    ((said,), *_) = database.execute(f"PRAGMA {kind}").fetchall()
    if said != "ok":
        raise DamagedJournalError(damage(folder, JOURNAL, " ".join(str(said).split())))


def damage(folder: Path, name: str, what: str) -> str:
    """Say what is wrong with a file of the journal, and what to do."""
    mend = f"`lpfloop lake repair {run_argument(folder)}` restores the journal"
    return f"{folder / name} is damaged ({what}): {mend}"
