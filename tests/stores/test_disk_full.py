"""A disk that is full or fails leaves nothing half-published, and the call may be made again."""

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples import CANDIDATE, PAIR, REWARD
from lpfloop.stores import durable, sealing
from lpfloop.stores.failpoints import FAILPOINTS, armed, observed
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealed import check_folder, check_part

TABLES = [to_table(type(row), [row]) for row in (PAIR, CANDIDATE, REWARD)]
ERRORS = {"enospc": errno.ENOSPC, "edquot": errno.EDQUOT, "eio": errno.EIO}
OLD, NEW = b"old", b"new" * 1000


def parts(root: Path) -> None:
    folder = durable.make_folder(root / "parts")
    sealing.write_parts([(folder, table) for table in TABLES])


def file(root: Path) -> None:
    durable.write_file(root / "file", NEW)


def draft(root: Path) -> None:
    (root / "draft").write_bytes(NEW)
    durable.publish_file(root / "draft", root / "file")


def checkpoint(root: Path) -> None:
    source = root / "work" / "model"
    source.mkdir(parents=True, exist_ok=True)
    (source / "config.json").write_bytes(b"{}")
    (source / "weights").write_bytes(NEW)
    durable.publish_folder(source, durable.make_folder(root / "checkpoints"))


ACTIONS: list[Callable[[Path], None]] = [parts, file, draft, checkpoint]
"""What publishes something, and may be done again after it failed."""


def start(root: Path) -> None:
    root.mkdir()
    durable.write_file(root / "file", OLD)


def places(action: Callable[[Path], None], root: Path) -> list[str]:
    """Return each failpoint that an action reaches, each time it does."""
    start(root)
    with observed() as names:
        action(root)
    return [f"{name}#{names[: n + 1].count(name)}" for n, name in enumerate(names)]


def require_whole(root: Path) -> int:
    """Check all that has its final name; return how much there is."""
    sealed = list(root.glob("parts/[!.]*"))
    published = list(root.glob("checkpoints/[!.]*"))
    for path in sealed:
        check_part(path)
    for path in published:
        check_folder(path)
    if (root / "file").exists():
        assert (root / "file").read_bytes() in (OLD, NEW)
    return len(sealed) + len(published) + (root / "file").exists()


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_whatever_fails_nothing_is_half_published_and_it_may_be_done_again(tmp_path, action, error):
    found = places(action, tmp_path / "whole")
    assert len(found) >= 6
    wanted = require_whole(tmp_path / "whole")
    for place in found:
        root = tmp_path / place
        start(root)
        with armed({place: error}), pytest.raises(OSError, match="failpoint") as caught:
            action(root)
        assert caught.value.errno == ERRORS[error]
        require_whole(root)
        assert not list(root.rglob(f"{durable.TEMPORARY}*")), f"{place} leaves what takes room"
        action(root)
        assert require_whole(root) == wanted


def test_each_failpoint_of_a_publication_is_among_them(tmp_path):
    reached = {
        place.partition("#")[0]
        for n, action in enumerate(ACTIONS)
        for place in places(action, tmp_path / str(n))
    }
    kinds = ("part.", "file.", "manifest.", "draft.", "published.", "folder.")
    assert reached == {name for name in FAILPOINTS if name.startswith(kinds)}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_what_could_not_be_removed_is_swept_at_the_next_start(tmp_path, action):
    """The disk fails for good: even the cleaning up does."""
    armed_always = {
        name: "eio" for name in FAILPOINTS if name.startswith(("temporary.", "retired."))
    }
    for place in places(action, tmp_path / "whole"):
        root = tmp_path / place
        start(root)
        with armed({place: "eio", **armed_always}), pytest.raises(OSError, match="failpoint"):
            action(root)
        durable.sweep(root)
        require_whole(root)
        assert not list(root.rglob(f"{durable.TEMPORARY}*"))


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_a_file_whose_fsync_failed_is_never_synced_again(tmp_path, monkeypatch, action):
    """The kernel forgets such bytes and then calls the file clean: a second fsync would lie."""
    failed, synced = set[int](), set[int]()
    held = list[int]()  # so that no new file gets the number of the lost one
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
    with pytest.raises(OSError, match="Input/output"):
        action(tmp_path)
    action(tmp_path)
    os.close(held.pop())
    assert failed
    assert synced
    assert not failed & synced
    assert require_whole(tmp_path) > 0


LIMITED = """
import resource, sys
from pathlib import Path
from test_disk_full import ACTIONS
action = next(a for a in ACTIONS if a.__name__ == sys.argv[1])
root = Path(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[4])))
try:
    action(root)
except OSError as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
action(root)
"""


@pytest.mark.parametrize("action", [parts, file], ids=lambda action: action.__name__)
@pytest.mark.parametrize("limit", [0, 1, 1000])
def test_a_file_that_the_system_cuts_short_is_not_published(tmp_path, action, limit):
    """RLIMIT_FSIZE stands for a real full disk: the write is short, the next one fails."""
    durable.write_file(tmp_path / "file", OLD)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, action.__name__, str(tmp_path), str(limit), str(hard)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{errno.EFBIG}\n"), done.stderr
    assert require_whole(tmp_path) == (1 if action is file else 1 + len(TABLES))
    assert not list(tmp_path.rglob(f"{durable.TEMPORARY}*"))
