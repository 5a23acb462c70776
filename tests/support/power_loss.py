"""A model of a disk that loses power: the states that a log of operations may leave behind.

What POSIX promises, and no more: bytes are safe after an fsync of their file, names after an fsync
of the folder they are in. Until then each change of a name is kept or lost on its own, whatever
came before or after it (a rename is one change where both names are in one folder, and never loses
the file where they are not), and bytes are lost, cut short, or have holes, by blocks.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from lpfloop.stores.operations import Operation

BLOCK = 512

T = TypeVar("T")

Change = tuple[int, str, int | None]
"""In a folder, a name comes to stand for a file or folder, or for nothing."""


@dataclass
class File:
    data: bytes = b""
    synced: bool = False

    def leftovers(self) -> tuple[bytes, ...]:
        """What a power loss may make of the bytes."""
        return (self.data,) if self.synced else _torn(self.data)


@dataclass
class Folder:
    names: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)


@cache
def _torn(data: bytes) -> tuple[bytes, ...]:
    starts = range(0, len(data), BLOCK)
    cut = [data[:start] for start in starts]
    holes = [
        data[:start] + b"\0" * len(data[start : start + BLOCK]) + data[start + BLOCK :]
        for start in starts
    ]
    return tuple(dict.fromkeys([data, b"", *cut, *holes]))


class Disk:
    """The disk as running processes see it, and what of it is durable."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._things: list[File | Folder] = [Folder()]
        self._pending: list[tuple[tuple[Change, ...], ...]] = []

    def apply(self, operation: Operation) -> None:
        """Do what an operation of durable.py does."""
        getattr(self, f"_{operation.kind}")(operation)

    def knows(self, path: Path) -> bool:
        """Whether there is something at `path`."""
        try:
            self._find(path)
        except KeyError:
            return False
        return True

    def after_power_loss(self, names: int, tears: int) -> Iterator[dict[str, bytes]]:
        """Give the files of possible states: all of them, or as many as asked for, by a seed.

        At most `names` ways in which names are kept or lost, each with `tears` in which bytes are.
        """
        for changes in _choices(self._pending, names):
            tree = {n: dict(f.durable) for n, f in enumerate(self._things) if isinstance(f, Folder)}
            for folder, name, thing in itertools.chain.from_iterable(changes):
                if thing is None:
                    tree[folder].pop(name, None)
                else:
                    tree[folder][name] = thing
            found = dict(self._walk(tree, 0, ""))
            for left in _choices([file.leftovers() for file in found.values()], tears):
                yield dict(zip(found, left, strict=True))

    def _walk(
        self, names: dict[int, dict[str, int]], folder: int, prefix: str
    ) -> Iterator[tuple[str, File]]:
        for name, number in names[folder].items():
            thing = self._things[number]
            if isinstance(thing, File):
                yield prefix + name, thing
            else:
                yield from self._walk(names, number, f"{prefix}{name}/")

    def _find(self, path: Path) -> int:
        number = 0
        for name in path.relative_to(self._root).parts:
            folder = self._things[number]
            assert isinstance(folder, Folder)
            number = folder.names[name]
        return number

    def _place(self, path: Path) -> tuple[int, dict[str, int]]:
        number = self._find(path.parent)
        folder = self._things[number]
        assert isinstance(folder, Folder)
        return number, folder.names

    def _add(self, path: Path, thing: File | Folder) -> None:
        self._things.append(thing)
        self._name(path, len(self._things) - 1)

    def _name(self, path: Path, number: int) -> None:
        folder, names = self._place(path)
        names[path.name] = number
        self._pending.append(((), ((folder, path.name, number),)))

    def _mkdir(self, operation: Operation) -> None:
        self._add(operation.path, Folder())

    def _create(self, operation: Operation) -> None:
        self._add(operation.path, File())

    def _write(self, operation: Operation) -> None:
        file = self._things[self._find(operation.path)]
        assert isinstance(file, File)
        file.data = operation.data

    def _sync(self, operation: Operation) -> None:
        file = self._things[self._find(operation.path)]
        assert isinstance(file, File)
        file.synced = True

    def _rename(self, operation: Operation) -> None:
        assert operation.target is not None
        source, old = self._place(operation.path)
        target, new = self._place(operation.target)
        number = old.pop(operation.path.name)
        new[operation.target.name] = number
        add = (target, operation.target.name, number)
        drop = (source, operation.path.name, None)
        self._pending.append(((), (add, drop)) if source == target else ((), (add,), (add, drop)))

    def _link(self, operation: Operation) -> None:
        assert operation.target is not None
        self._name(operation.target, self._find(operation.path))

    def _copytree(self, operation: Operation) -> None:
        assert operation.target is not None
        folder = self._things[self._find(operation.path)]
        assert isinstance(folder, Folder)
        self._add(operation.target, Folder())
        for name, number in folder.names.items():
            inner = Operation("", "", operation.path / name, operation.target / name)
            if isinstance(self._things[number], Folder):
                self._copytree(inner)
            else:
                self._link(inner)

    def _unlink(self, operation: Operation) -> None:
        folder, names = self._place(operation.path)
        names.pop(operation.path.name, None)
        self._pending.append(((), ((folder, operation.path.name, None),)))

    # Only temporaries are removed so: nobody looks at what is left in a half of one.
    _rmtree = _unlink

    def _sync_folder(self, operation: Operation) -> None:
        number = self._find(operation.path)
        folder = self._things[number]
        assert isinstance(folder, Folder)
        folder.durable = dict(folder.names)
        left = [
            tuple(change for change in choices[-1] if change[0] != number)
            for choices in self._pending
        ]
        kept = [
            choices if len(rest) == len(choices[-1]) else ((), rest)
            for choices, rest in zip(self._pending, left, strict=True)
        ]
        self._pending = [choices for choices in kept if choices[-1]]


def _choices(options: Sequence[Sequence[T]], limit: int) -> Iterator[tuple[T, ...]]:
    """Give one option of each, in every combination, or in `limit` of them if there are more."""
    if math.prod(len(option) for option in options) <= limit:
        yield from itertools.product(*options)
        return
    generator = random.Random(len(options))
    yield tuple(option[0] for option in options)
    yield tuple(option[-1] for option in options)
    for _ in range(limit - 2):
        yield tuple(generator.choice(option) for option in options)


@cache
def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
