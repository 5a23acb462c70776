"""SQLite's write-ahead log of a journal: which pages it holds, and whether it is whole.

Each frame of the log has a checksum that continues the one before. SQLite uses the frames as far as
these agree, and takes what follows for a write that never ended: a damaged frame would silently
undo every transaction after it. Here that is told apart from a crash (sqlite.org/fileformat2.html,
section 4).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

MAGIC = {0x377F0682: "<u4", 0x377F0683: ">u4"}
HEADER, FRAME_HEADER = 32, 24
AT_ONCE = 1024

Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a log holds: the newest committed state of each page in it, by number from 1.

    `count` are the pages of the whole database, and `whole` the bytes of the log that hold what was
    committed. `fault` says what is damaged, if anything is.
    """

    path: Path
    size: int = 0
    whole: int = 0
    count: int = 0
    fault: str | None = None
    pages: Mapping[int, bytes] = field(default_factory=dict[int, bytes])

    @classmethod
    def read(cls, journal: Path) -> Self:
        """Read the log of the journal at this path, if there is one."""
        path = journal.with_name(f"{journal.name}-wal")
        try:
            with path.open("rb") as file:
                return cls._read(path, file, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return cls(path=path)

    @classmethod
    def _read(cls, path: Path, file: BinaryIO, length: int) -> Self:
        data = file.read(HEADER)
        if length <= HEADER or not any(data):
            return cls(path=path, size=length)
        head: Words = np.frombuffer(data, ">u4", 8).astype(np.uint32)
        order = MAGIC.get(int(head[0]))
        size = int(head[2])
        told = np.frombuffer(data, order or ">u4", 6).astype(np.uint32)
        if order is None or not size or tuple(_sums(told[None])[0]) != tuple(head[6:8]):
            return cls(path=path, size=length, fault="its header was altered")
        heads, follows = _frames(file, head, order)
        return cls._of_frames(path, length, size, heads, follows)

    @classmethod
    def _of_frames(
        cls, path: Path, length: int, size: int, heads: Words, follows: NDArray[np.bool]
    ) -> Self:
        commits = np.flatnonzero(heads[:, 1])
        broken = np.flatnonzero(~follows)
        first = int(broken[0]) if len(broken) else len(heads)
        used = int(max(commits[commits < first], default=-1)) + 1
        places = {int(number): place for place, number in enumerate(heads[:used, 0])}
        fault = f"frame {first + 1} was altered" if _undone(follows, commits, first) else None
        return cls(
            path=path,
            size=length,
            whole=HEADER + used * (FRAME_HEADER + size),
            count=int(heads[used - 1, 1]) if used else 0,
            fault=fault,
            pages=LoggedPages(path, size, places),
        )


class LoggedPages(Mapping[int, bytes]):
    """The pages in a log by their number, each read from it when it is looked at."""

    def __init__(self, path: Path, size: int, places: Mapping[int, int]) -> None:
        self._path = path
        self._size = size
        self._places = places

    def __getitem__(self, number: int) -> bytes:
        place = HEADER + self._places[number] * (FRAME_HEADER + self._size) + FRAME_HEADER
        with self._path.open("rb", buffering=0) as file:
            file.seek(place)
            return file.read(self._size)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _frames(file: BinaryIO, head: Words, order: str) -> tuple[Words, NDArray[np.bool]]:
    """Return the headers of all frames, and whether each is of this log and follows on the last.

    They are looked at a few at a time: to plan a large stage can make a log of gigabytes.
    """
    length = FRAME_HEADER + int(head[2])
    heads, follows = [np.empty((0, 6), np.uint32)], [np.empty(0, np.bool)]
    last = head[6:8]
    while len(data := file.read(AT_ONCE * length)) >= length:
        frames = np.frombuffer(data[: len(data) // length * length], np.uint8).reshape(-1, length)
        told = frames[:, :FRAME_HEADER].copy().view(">u4").astype(np.uint32)
        heads.append(told)
        follows.append(_following(frames, told, head, last, order))
        last = told[-1, 4:6]
    return np.concatenate(heads), np.concatenate(follows)


def _following(
    frames: NDArray[np.uint8], heads: Words, head: Words, last: Words, order: str
) -> NDArray[np.bool]:
    """Whether each frame is of this log, and its checksum continues that of the one before."""
    parts = (frames[:, :8], frames[:, FRAME_HEADER:])
    words = np.ascontiguousarray(np.hstack(parts)).view(order).astype(np.uint32)
    before = np.vstack((last[None], heads[:-1, 4:6]))
    told = _sums(words, before)
    salted = (heads[:, 2:4] == head[4:6]).all(axis=1)
    return salted & (told == heads[:, 4:6]).all(axis=1)


def _undone(follows: NDArray[np.bool], commits: NDArray[np.intp], first: int) -> bool:
    """Whether transactions were committed in a row after the first frame that does not follow.

    A commit that failed leaves at most its own last frames there: never two commits in a row.
    """
    breaks = np.flatnonzero(~follows)
    after = commits[commits > first]
    runs = np.searchsorted(breaks, after)
    return len(set(runs.tolist())) < len(after)


def _sums(words: Words, before: Words | None = None) -> Words:
    """Return SQLite's two checksums of each row of words, continuing those `before`."""
    weights, power = _weights(words.shape[1])
    told = words @ weights
    return told if before is None else told + before @ power


@cache
def _weights(count: int) -> tuple[Words, Words]:
    """Return what each word adds to the two sums, and what sums from before become.

    SQLite adds the words in pairs: s1 += a + s2; s2 += b + s1. That is linear modulo 2**32.
    """
    step = np.array([[1, 1], [1, 2]], np.uint32)
    power = np.eye(2, dtype=np.uint32)
    weights = np.empty((count, 2), np.uint32)
    for pair in range(count - 2, -1, -2):
        weights[pair] = power[:, 0] + power[:, 1]
        weights[pair + 1] = power[:, 1]
        power = power @ step
    return weights, power.T.copy()
