# pyright: basic
"""Packing in the background: the parts of earlier iterations are merged into few files.

A pack is written and synced, then one transaction replaces its parts by it, then their files are
removed: a kill at any point loses nothing, and the next attempt continues from there. On a full
disk, or if something is damaged, the parts stay as they are. In a bucket only those files go whose
rows this journal has in a pack, and only while this process is the run's head: what the journal
does not know of may be the rows of a machine that has adopted the run.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain, islice
from pathlib import Path

import apsw
import pyarrow as pa

from .failpoints import reach
from .heads import FEW
from .journal import FencedError, Journal
from .journal_reader import JournalError, Part
from .lock import unread
from .objects import objects_of
from .packs import PACKED, pack_folder, packed_table, part_folder, path_of

FEWEST = 8
"""A stage with fewer files of a table is not packed."""
ROWS, SIZE = 128 * 1024, 32 * 2**20
"""At most this many rows, and bytes of parts, go into a pack: it is built in memory."""
BATCH = 512
TURN_S = 0.1
NICENESS = 10

logger = logging.getLogger("lpfloop.store")


def pack_all(
    journal: Journal, before: int | None = None, *, ending: Callable[[], bool] = lambda: False
) -> int:
    """Pack finished stages, all or those before an iteration; return how many parts were packed.

    Raises:
        DamagedError: if a part is missing or altered.
    """
    count = 0
    for iteration, stage, table in journal.packable(before, FEWEST):
        if table not in PACKED:
            continue
        groups = list(_groups(journal.unpacked(iteration, stage, table)))
        with closing(_read(journal, chain.from_iterable(groups))) as read:
            for group in groups:
                if ending():
                    return count
                count += _pack(journal, group, list(islice(read, len(group))))
    journal.take_snapshot()  # Those before refer to the parts.
    discard_superseded(journal)
    return count


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield the parts of one pack at a time; a part that would be alone stays as it is.

    So do parts without a row where all of a pack would be: they share one file as it is, and their
    packs would be equal, too, which no two packs may be.
    """
    group, rows, size = list[Part](), 0, 0
    for part in parts:
        if group and (rows + part.rows > ROWS or size + part.size > SIZE):
            yield from [group] if len(group) > 1 and rows else []
            group, rows, size = [], 0, 0
        group.append(part)
        rows, size = rows + part.rows, size + part.size
    yield from [group] if len(group) > 1 and rows else []


def _read(journal: Journal, parts: Iterable[Part]) -> Generator[pa.Table]:
    """Yield the rows of parts, the next of them being fetched meanwhile."""
    files = ((path_of(journal.folder, part), part.size) for part in parts)
    yield from objects_of(journal.folder).read_parts(files)


def _pack(journal: Journal, parts: Sequence[Part], read: Sequence[pa.Table]) -> int:
    """Pack parts of one stage and table; return how many."""
    reach("lake.pack")
    folder = pack_folder(journal.folder, parts[0].table)
    sealed = objects_of(journal.folder).write_pack(folder, packed_table(parts, read))
    journal.pack(sealed, parts)
    return len(parts)


def discard_superseded(journal: Journal) -> int:
    """Remove the files of packed parts, unless the run is being read; return how many."""
    count = 0
    for table in sorted(PACKED):
        folder = part_folder(journal.folder, table)
        names = [path.stem for path in objects_of(journal.folder).files(folder)]
        packed = list[str]()
        for some in _batches(names):
            packed += {*some} - journal.own_files(table, some)
        for some in _batches(sorted(journal.superseded(table, packed))):
            count += _discard(journal, table, some)
    return count


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + BATCH] for first in range(0, len(names), BATCH))


def _discard(journal: Journal, table: str, hashes: Sequence[str]) -> int:
    # Equal rows share one file, so a unit that is being committed may need one of these again.
    with journal.publishing, unread(journal.folder) as free:
        gone = sorted({*hashes} - journal.own_files(table, hashes)) if free else []
        if gone:
            reach("lake.discard")
            folder = part_folder(journal.folder, table)
            discard_rows(journal, [folder / f"{sha256}.parquet" for sha256 in gone])
    return len(gone)


def discard_rows(journal: Journal, paths: Sequence[Path]) -> None:
    """Remove files of rows that were listed before, as long as this process is the run's head.

    It is asked for after the listing, and again before each few: whoever has adopted the run may
    have made the same rows again, in files of the same names.

    Raises:
        AdoptedError: if another machine has taken the run over.
        OutOfReachError: if the bucket does not answer.
    """
    for first in range(0, len(paths), FEW):
        journal.require_head()
        objects_of(journal.folder).discard(paths[first : first + FEW])


class Packer:
    """A thread of low priority that packs on request."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._asked: queue.Queue[tuple[int | None] | None] = queue.Queue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="packer", daemon=True)
        self._thread.start()

    def ask(self, before: int | None) -> None:
        """Request packing of finished stages, all or those before an iteration."""
        self._asked.put((before,))

    def wait(self, stopped: Callable[[], bool]) -> None:
        """Wait until all requests are done, or `stopped` says so."""
        with self._asked.all_tasks_done:
            while self._asked.unfinished_tasks and self._thread.is_alive() and not stopped():
                self._asked.all_tasks_done.wait(TURN_S)

    def close(self) -> None:
        """End the thread after the pack that it is writing; it starts no other."""
        self._ending.set()
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        with suppress(OSError):
            # Linux has a niceness for each thread; other systems do not.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while (asked := self._asked.get()) is not None:
            if not self._ending.is_set():
                self._pack(*asked)
            self._asked.task_done()

    def _pack(self, before: int | None) -> None:
        """Pack; on an error try again later: the parts are still there."""
        try:
            pack_all(self._journal, before, ending=self._ending.is_set)
        except (OSError, apsw.Error, JournalError, FencedError) as error:
            logger.warning("not packed for now: %s", error)
