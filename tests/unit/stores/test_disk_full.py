"""A full or failing disk leaves nothing half-published, and the caller may retry."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from rows import PAIR, REWARD

from lpfloop.stores import durable, verified
from lpfloop.stores.failpoints import arm, record_names
from lpfloop.stores.objects import Objects
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import check_folder

TABLES = [to_table(type(row), [row]) for row in (PAIR, REWARD)]
ERRORS = {"enospc": errno.ENOSPC, "edquot": errno.EDQUOT, "eio": errno.EIO}
OLD, NEW = b"old", b"new" * 1000


def parts(root: Path) -> None:
    folder = durable.make_folder(root / "parts")
    for table in TABLES:
        verified.write_rows(folder, table)


def file(root: Path) -> None:
    durable.write_file(root / "file", NEW)


def checkpoint(root: Path) -> None:
    source = root / "work" / "model"
    source.mkdir(parents=True, exist_ok=True)
    (source / "config.json").write_bytes(b"{}")
    (source / "weights").write_bytes(NEW)
    durable.publish_folder(source, durable.make_folder(root / "checkpoints"))


ACTIONS: list[Callable[[Path], None]] = [parts, file, checkpoint]
"""Actions that publish something, and may be repeated after a failure."""


def start(root: Path) -> None:
    root.mkdir()
    durable.write_file(root / "file", OLD)


def places(action: Callable[[Path], None], root: Path) -> list[str]:
    """Return each failpoint that an action reaches, once for each time."""
    start(root)
    with record_names() as names:
        action(root)
    return [f"{name}#{names[: n + 1].count(name)}" for n, name in enumerate(names)]


def require_whole(root: Path) -> int:
    """Check everything under a final name; return the number of things."""
    sealed = list(root.glob("parts/[!.]*"))
    published = list(root.glob("checkpoints/[!.]*"))
    for path in sealed:
        Objects().check_part(path)
    for path in published:
        check_folder(path)
    if (root / "file").exists():
        assert (root / "file").read_bytes() in (OLD, NEW)
    return len(sealed) + len(published) + (root / "file").exists()


def check_failure_publishes_nothing_half(error, action, tmp_path):
    found = places(action, tmp_path / "whole")
    assert len(found) >= 6
    wanted = require_whole(tmp_path / "whole")
    for place in found:
        root = tmp_path / place
        start(root)
        with arm({place: error}), pytest.raises(OSError, match="failpoint") as caught:
            action(root)
        assert caught.value.errno == ERRORS[error]
        require_whole(root)
        assert not list(root.rglob(f"{durable.TEMPORARY}*")), f"{place} leaves what takes room"
        action(root)
        assert require_whole(root) == wanted


def test_failure_publishes_nothing_half(subtests, tmp_path):
    cases = [(action, "enospc") for action in ACTIONS] + [(file, "edquot"), (file, "eio")]
    for number, (action, error) in enumerate(cases):
        with subtests.test(action=action.__name__, error=error):
            folder = tmp_path / str(number)
            folder.mkdir()
            check_failure_publishes_nothing_half(error, action, folder)


def test_failed_fsync_not_repeated(subtests, tmp_path, monkeypatch):
    """The kernel drops such bytes, then calls the file clean: a second fsync would wrongly pass."""
    failed, synced = set[int](), set[int]()
    held = list[int]()  # so that the lost file's number is not used again
    sync = os.fsync

    def first_fails(handle: int) -> None:
        file = os.fstat(handle).st_ino
        if stat.S_ISREG(os.fstat(handle).st_mode):
            if not failed:
                failed.add(file)
                held.append(os.dup(handle))
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            synced.add(file)
        sync(handle)

    monkeypatch.setattr(os, "fsync", first_fails)
    for action in ACTIONS:
        with subtests.test(case=action.__name__):
            folder = tmp_path / action.__name__
            folder.mkdir()
            failed.clear()
            synced.clear()
            with pytest.raises(OSError, match="Input/output"):
                action(folder)
            action(folder)
            assert failed
            assert synced
            assert not failed & synced
            assert require_whole(folder) > 0
    for handle in held:
        os.close(handle)
