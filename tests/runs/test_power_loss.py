"""After any power loss, every file that the journal refers to is present and whole.

Each history runs for real and records its operations; the disk model of
tests/support/power_loss.py lists the possible remains after each of them. A history claims the
files that must exist from then on: those that the journal may refer to.
"""

import hashlib
import itertools
import json
import math
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from rows import ONE_OF_EACH, REWARD

from lpfloop.stores import durable, verified
from lpfloop.stores.durable import Operation
from lpfloop.stores.failpoints import arm, record_names
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import file_path
from lpfloop.stores.lake import RunWriter
from lpfloop.stores.records import Reward
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import MANIFEST

BLOCK = 512

T = TypeVar("T")

Change = tuple[int, str, int | None]
"""In a folder, a name starts to refer to a file or folder, or to nothing."""


@dataclass
class File:
    data: bytes = b""
    synced: bool = False

    def leftovers(self) -> tuple[bytes, ...]:
        """Return all possible contents after a power loss."""
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
    """The disk as running processes see it, and its durable part."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._things: list[File | Folder] = [Folder()]
        self._pending: list[tuple[tuple[Change, ...], ...]] = []

    def apply(self, operation: Operation) -> None:
        """Carry out an operation of durable.py."""
        getattr(self, f"_{operation.kind}")(operation)

    def knows(self, path: Path) -> bool:
        """Return whether `path` exists."""
        try:
            self._find(path)
        except KeyError:
            return False
        return True

    def after_power_loss(self, names: int, tears: int) -> Iterator[dict[str, bytes]]:
        """Yield the files of possible states: all of them, or as many as requested, by a seed.

        At most `names` combinations of kept and lost names, each with `tears` combinations of
        bytes.
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

    # lpfloop removes only temporary folders this way, and no test reads the rest of a partial
    # removal.
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


MANY, SOME, FEW = (100, 20), (40, 10), (12, 3)
"""Maximal numbers of states at each crash: combinations of names, and of bytes for each."""

Files = Mapping[str, bytes]
Check = Callable[[Files, str], bool]

PARTS = [to_table(type(row), [row]) for row in ONE_OF_EACH]
PART = re.compile(r"(?:.*/)?([0-9a-f]{64})\.parquet")
CHECKPOINT = re.compile(r"((?:.*/)?checkpoints/[0-9a-f]{64})/.*")


@dataclass(frozen=True)
class Claim:
    """From here on `check` must hold of `path`; this replaces the earlier claim about it."""

    path: Path
    check: Check


# claims


def is_part(files: Files, path: str) -> bool:
    return path in files and sha256(files[path]) == Path(path).stem


def is_published(files: Files, path: str) -> bool:
    manifest = files.get(f"{path}/{MANIFEST}", b"")
    if sha256(manifest) != Path(path).name:
        return False
    there = {n[len(path) + 1 :]: sha256(d) for n, d in files.items() if n.startswith(f"{path}/")}
    return there == {**listed(manifest), MANIFEST: sha256(manifest)}


@cache
def listed(manifest: bytes) -> dict[str, str]:
    return {entry["name"]: entry["sha256"] for entry in json.loads(manifest)}


def is_one_of(*allowed: bytes) -> Check:
    return lambda files, path: files.get(path) in allowed


def is_anything(files: Files, path: str) -> bool:
    return True


def is_gone(files: Files, path: str) -> bool:
    return path not in files


def damage(files: Files, claims: Mapping[str, Check]) -> list[str]:
    """Return the paths of failed claims, and incomplete files under final names."""
    parts = {name for name in files if PART.fullmatch(name)}
    folders = {match[1] for name in files if (match := CHECKPOINT.fullmatch(name))}
    return [
        *(path for path, check in claims.items() if not check(files, path)),
        *(path for path in parts if not is_part(files, path)),
        *(path for path in folders if not is_published(files, path)),
    ]


# histories


class Recorder:
    """The log of a history: operations of durable.py, writes of other libraries, claims."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[Operation | Claim] = []

    def observe(self, operation: Operation) -> None:
        """Record operations of durable.py, and the writer of a file before its fsync."""
        if operation.purpose == "draft" and operation.kind == "sync":
            self.log.append(Operation("", "create", operation.path))
            self.log.append(
                Operation("", "write", operation.path, data=operation.path.read_bytes())
            )
        self.log.append(operation)

    def claim(self, path: Path, check: Check) -> None:
        self.log.append(Claim(path, check))

    def write(self, path: Path, data: bytes) -> None:
        """Write a file like other libraries: in place, without a sync."""
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        self.log.append(Operation("", "create", path))
        self.log.append(Operation("", "write", path, data=data))

    def folder(self, path: Path) -> Path:
        if path.exists():
            shutil.rmtree(path)
            self.log.append(Operation("", "rmtree", path))
        path.mkdir()
        self.log.append(Operation("", "mkdir", path))
        return path

    def model(self, path: Path) -> Path:
        """Write a model like a trainer."""
        self.folder(path)
        self.write(path / "config.json", b"{}" * 300)
        self.folder(path / "inner")
        self.write(path / "inner" / "weights", bytes(range(256)) * 5)
        return path


def parts(record: Recorder) -> None:
    for name in "abcde":
        folder = durable.make_folder(record.root / "runs" / name / "parts")
        for table in PARTS[:7]:
            record.claim(verified.write_rows(folder, table), is_part)


def replaced_file(record: Recorder) -> None:
    path = durable.make_folder(record.root / "runs") / "file"
    versions = [b"old" * 400, b"new" * 500, b"x"]
    record.claim(path, lambda files, path: files.get(path) in (None, *versions))
    for number, version in enumerate(versions):
        durable.write_file(path, version)
        record.claim(path, is_one_of(*versions[number : number + 2]))


def checkpoint(record: Recorder) -> None:
    checkpoints = durable.make_folder(record.root / "checkpoints")
    identity = durable.publish_folder(record.model(record.root / "model"), checkpoints)
    record.claim(checkpoints / identity, is_published)


def store(record: Recorder) -> None:
    """Work like the loop: commit units whose stages' files the journal refers to."""
    folder = record.root / "lake" / "runs" / "a"
    journal = Journal.create(folder, {})
    record.claim(folder / "journal.sqlite", lambda files, path: path in files)
    writer = RunWriter(journal)

    def named(_: str) -> None:
        for part in journal.parts():
            if part.file is not None:
                record.claim(file_path(folder, part.table, part.file), is_part)

    with arm({"journal.seal.after": named}):
        for stage in ("reward", "again"):
            journal.plan(1, stage, stage, lambda stage=stage: [f"{stage}-{n}" for n in range(3)])
            for n in range(3):
                rows = [replace(REWARD, candidate_id=f"{stage}-{n}")]
                writer.commit(f"{stage}-{n}", {Reward: rows}, {})
            writer.seal()
    writer.close()


def tidying(record: Recorder) -> None:
    """Remove a file, set another one aside."""
    run = durable.make_folder(record.root / "run")
    data = b"damaged" * 100
    for name in ("retired", "damaged"):
        record.claim(run / name, is_anything)
        durable.write_file(run / name, data)
        record.claim(run / name, is_one_of(data))
    record.claim(run / "retired", is_anything)
    durable.remove(run / "retired")
    record.claim(run / "retired", is_gone)
    record.claim(run / "damaged", lambda files, _: data in files.values())
    place = durable.quarantine(run / "damaged", run / "quarantine")
    record.claim(run / "damaged", is_gone)
    record.claim(place, is_one_of(data))


HISTORIES = {
    parts: 700,
    replaced_file: 50,
    checkpoint: 200,
    tidying: 55,
    store: 100,
}
"""Each history, and how many states it must give, so that the model looks at something.
"""


@contextmanager
def recording(folder: Path) -> Iterator[Recorder]:
    folder.mkdir()
    (folder / "of others").touch()
    recorder = Recorder(folder)
    durable.observers.append(recorder.observe)
    yield recorder
    durable.observers.remove(recorder.observe)


def states(
    record: Recorder,
    *,
    since: int = 0,
    without: int | None = None,
    bounds: tuple[int, int],
) -> Iterator[list[str]]:
    """Yield the damage in each possible state after a power loss, at every position of the log.

    `since` is the first position; `without` skips one entry, as if the code had not done it.
    """
    disk, claims = Disk(record.root), dict[str, Check]()
    for position, entry in enumerate(record.log):
        if position == without:
            continue
        if isinstance(entry, Claim):
            claims[entry.path.relative_to(record.root).as_posix()] = entry.check
        else:
            disk.apply(entry)
        if position >= since:
            for files in disk.after_power_loss(*bounds):
                yield damage(files, claims)


def test_no_state_is_damaged(tmp_path, subtests):
    for history, least in HISTORIES.items():
        with (
            subtests.test(history=history.__name__),
            recording(tmp_path / history.__name__) as record,
        ):
            history(record)
            found = list(states(record, bounds=SOME))
            assert [damaged for damaged in found if damaged] == []
            assert len(found) >= least


def test_without_an_fsync_there_is_damage(tmp_path, subtests):
    """The model detects damage, and every fsync is necessary."""
    for history in (parts, replaced_file, checkpoint):
        with (
            subtests.test(history=history.__name__),
            recording(tmp_path / history.__name__) as record,
        ):
            history(record)
            syncs = [
                number
                for number, entry in enumerate(record.log)
                if isinstance(entry, Operation) and entry.kind.startswith("sync")
            ]
            seen = {n: any(states(record, without=n, bounds=MANY)) for n in syncs}
            unseen = [record.log[n] for n in syncs if not seen[n]]
            assert syncs
            assert unseen == []


class Killed(BaseException):
    """The process ends here."""


def die(name: str) -> None:
    raise Killed(name)


@pytest.mark.parametrize("history", [replaced_file, checkpoint, tidying])
def test_killed_then_without_power(tmp_path, subtests, history):
    """Files that a killed process made but did not sync become durable in the next process."""
    with recording(tmp_path / "once") as record:
        with record_names() as reached:
            history(record)
        times = Counter[str]()
        for name in reached:
            times[name] += 1
            place = f"{name}#{times[name]}"
            record.root, record.log = tmp_path / place, []
            record.root.mkdir()
            (record.root / "of others").touch()
            with arm({place: die}), pytest.raises(Killed):
                history(record)
            killed = len(record.log)
            durable.sweep(record.root)
            history(record)
            with subtests.test(place=place):
                found = list(states(record, since=killed, bounds=FEW))
                assert found
                assert [damaged for damaged in found if damaged] == []
