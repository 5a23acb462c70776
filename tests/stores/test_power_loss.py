"""Whatever a power loss leaves, nothing that the journal refers to is missing or damaged.

Each history runs for real, its operations are recorded, and the disk of tests/support/power_loss.py
says what may be left after each of them. A history claims what must be there from then on: what the
journal may refer to.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from power_loss import Disk, sha256

from examples import ONE_OF_EACH, REWARD
from lpfloop.stores import durable, operations, sealing
from lpfloop.stores.failpoints import armed, observed
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter
from lpfloop.stores.operations import Operation
from lpfloop.stores.packing import FEWEST, pack_all
from lpfloop.stores.packs import part_folder, path_of
from lpfloop.stores.records import Reward
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import MANIFEST

MANY, FEW = (100, 20), (12, 3)
"""States looked at for each place of a crash, at most: of names, and for each of bytes."""

Files = Mapping[str, bytes]
Check = Callable[[Files, str], bool]

PARTS = [to_table(type(row), [row]) for row in ONE_OF_EACH]
PART = re.compile(r"(?:.*/)?([0-9a-f]{64})\.parquet")
CHECKPOINT = re.compile(r"((?:.*/)?checkpoints/[0-9a-f]{64})/.*")


@dataclass(frozen=True)
class Claim:
    """From here on `check` holds of `path`, in place of what was claimed of it before."""

    path: Path
    check: Check


# what must hold


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
    """Name what is claimed and does not hold, and what has its final name and is not whole."""
    parts = {name for name in files if PART.fullmatch(name)}
    folders = {match[1] for name in files if (match := CHECKPOINT.fullmatch(name))}
    return [
        *(path for path, check in claims.items() if not check(files, path)),
        *(path for path in parts if not is_part(files, path)),
        *(path for path in folders if not is_published(files, path)),
    ]


# histories


class Recorder:
    """The log of a history: what durable.py did, what other libraries wrote, what is claimed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[Operation | Claim] = []

    def observe(self, operation: Operation) -> None:
        """Take down what durable.py did, and before the fsync of a file who wrote it."""
        if operation.purpose == "draft" and operation.kind == "sync":
            self.log.append(Operation("", "create", operation.path))
            self.log.append(
                Operation("", "write", operation.path, data=operation.path.read_bytes())
            )
        self.log.append(operation)

    def claim(self, path: Path, check: Check) -> None:
        self.log.append(Claim(path, check))

    def write(self, path: Path, data: bytes) -> None:
        """Write a file as other libraries do: in place, and nothing is synced."""
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
        """Write a model as a trainer does."""
        self.folder(path)
        self.write(path / "config.json", b"{}" * 300)
        self.folder(path / "inner")
        self.write(path / "inner" / "weights", bytes(range(256)) * 5)
        return path


def parts(record: Recorder) -> None:
    a, b = (record.root / "runs" / name / "parts" for name in "ab")
    for group in (
        [(a, PARTS[0]), (a, PARTS[1])],
        [(b, PARTS[0]), (a, PARTS[2]), (a, PARTS[5])],
        [(b, PARTS[1]), (b, PARTS[2]), (b, PARTS[3]), (b, PARTS[4])],
    ):
        durable.make_folder(group[0][0])
        sealed = sealing.write_parts(group)
        for (folder, _), part in zip(group, sealed, strict=True):
            record.claim(folder / f"{part.sha256}.parquet", is_part)


def replaced_file(record: Recorder) -> None:
    path = durable.make_folder(record.root / "runs") / "file"
    versions = [b"old" * 400, b"new" * 500, b"x"]
    record.claim(path, lambda files, path: files.get(path) in (None, *versions))
    for number, version in enumerate(versions):
        durable.write_file(path, version)
        record.claim(path, is_one_of(*versions[number : number + 2]))


def database(record: Recorder) -> None:
    run = durable.make_folder(record.root / "runs" / "a")
    (run / ".tmp-draft").write_bytes(b"SQLite" * 300)
    durable.publish_file(run / ".tmp-draft", run / "journal.sqlite")
    record.claim(run / "journal.sqlite", is_one_of(b"SQLite" * 300))


def checkpoint(record: Recorder) -> None:
    checkpoints = durable.make_folder(record.root / "checkpoints")
    identity = durable.publish_folder(record.model(record.root / "model"), checkpoints)
    record.claim(checkpoints / identity, is_published)


def again(record: Recorder) -> None:
    for _ in range(2):
        parts(record)
        checkpoint(record)


def fork(record: Recorder) -> None:
    checkpoint(record)
    ours = record.root / "checkpoints"
    (part,) = sealing.write_parts([(ours, PARTS[0])])
    (identity,) = (path.name for path in ours.iterdir() if path.is_dir())
    child = durable.make_folder(record.root / "child" / "checkpoints")
    for name, check in ((identity, is_published), (f"{part.sha256}.parquet", is_part)):
        record.claim(ours / name, check)
        durable.link(ours / name, child / name)
        record.claim(child / name, check)


def store(record: Recorder) -> None:
    """What the loop does: it commits units in groups, and the journal refers to their parts."""
    folder = record.root / "lake" / "runs" / "a"
    journal = Journal(folder) if folder.exists() else Journal.create(folder, {})
    record.claim(folder / "journal.sqlite", lambda files, path: path in files)
    writer = RunWriter(journal)
    journal.plan(1, "reward", "identity", lambda: [f"k{n}" for n in range(6)])
    for group in range(3):
        for n in range(2):
            row = replace(REWARD, candidate_id=f"{group}-{n}")
            writer.commit(f"k{2 * group + n}", {Reward: [row]}, {})
        writer.flush()
        for part in journal.parts():
            record.claim(path_of(folder, part), is_part)
    writer.close()


def packing(record: Recorder) -> None:
    """The journal refers to parts, then to a pack of them, then the parts are removed."""
    folder = record.root / "lake" / "runs" / "a"
    writer = RunWriter(Journal.create(folder, {}))
    journal = writer.journal
    journal.plan(1, "reward", "identity", lambda: [f"k{n}" for n in range(FEWEST)])
    for n in range(FEWEST):
        writer.commit(f"k{n}", {Reward: [replace(REWARD, candidate_id=str(n))]}, {})
    writer.flush()
    for part in journal.parts():
        record.claim(path_of(folder, part), is_part)

    def switched(_: str) -> None:
        for part in journal.parts():
            record.claim(part_folder(folder, part.table) / f"{part.sha256}.parquet", is_anything)
            record.claim(path_of(folder, part), is_part)

    with armed({"journal.pack.after": switched}):
        pack_all(journal)
    writer.close()


def tidying(record: Recorder) -> None:
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
    place = durable.quarantine(run / "damaged", record.root / "run" / "quarantine")
    record.claim(run / "damaged", is_gone)
    record.claim(place, is_one_of(data))


HISTORIES = {
    parts: 2000,
    replaced_file: 50,
    database: 25,
    checkpoint: 350,
    tidying: 55,
    fork: 900,
    again: 7000,
    store: 100,
    packing: 300,
}
"""Each history, and how many states it must give, so that the model looks at something.

The steps of the two threads that seal parts mix in another way each time; one after another, they
give the fewest.
"""


def named(histories):
    return pytest.mark.parametrize("history", histories, ids=lambda history: history.__name__)


@pytest.fixture
def record(tmp_path) -> Iterator[Recorder]:
    (tmp_path / "of others").touch()
    recorder = Recorder(tmp_path)
    operations.observers.append(recorder.observe)
    yield recorder
    operations.observers.remove(recorder.observe)


def states(
    record: Recorder,
    *,
    since: int = 0,
    without: int | None = None,
    bounds: tuple[int, int] = MANY,
) -> Iterator[list[str]]:
    """Look at each state after a power loss at any place of the log; give what is damaged in it.

    `since` is the first place; `without` leaves out one entry, as if the code had not done it.
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


@named(HISTORIES)
def test_no_state_after_a_power_loss_is_damaged(record, history):
    history(record)
    found = list(states(record))
    assert [damaged for damaged in found if damaged] == []
    assert len(found) >= HISTORIES[history]


def test_enough_states_are_looked_at():
    assert sum(HISTORIES.values()) >= 10_000


@named([parts, replaced_file, database, checkpoint, tidying])
def test_without_any_one_fsync_there_is_damage(record, history):
    """The model can see damage; and there is no fsync that could be saved."""
    history(record)
    syncs = [n for n, entry in enumerate(record.log) if kind(entry).startswith("sync")]
    unseen = [record.log[n] for n in syncs if not any(states(record, without=n))]
    assert syncs
    assert unseen == []


def kind(entry: Operation | Claim) -> str:
    return entry.kind if isinstance(entry, Operation) else ""


class Killed(BaseException):
    """The process ends here: nothing after it is done, by this process."""


def die(name: str) -> None:
    raise Killed(name)


@named([history for history in HISTORIES if history not in (again, store, packing)])
def test_killed_at_any_failpoint_then_started_again_then_without_power(record, history, tmp_path):
    """What was made, but not durable, when the process was killed is made durable by the next."""
    with observed() as reached:
        history(Recorder(tmp_path))
    times = Counter[str]()
    for name in reached:
        times[name] += 1
        root = tmp_path / f"{name}-{times[name]}"
        root.mkdir()
        (root / "of others").touch()
        record.root, record.log = root, []
        with armed({f"{name}#{times[name]}": die}), pytest.raises(Killed):
            history(record)
        killed = len(record.log)
        durable.sweep(root)
        history(record)
        assert not any(states(record, since=killed, bounds=FEW)), name
