"""One process has the lock of a run; its death frees the run; a process that lost it cannot write.

The contenders are forked, and open the journal only after the fork.
"""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from rows import REWARD

from lpfloop.stores.journal import Done, FencedError, Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lock import LOCK, LockedError
from lpfloop.stores.schemas import to_table
from lpfloop.stores.verified import encode_tables

# Newer Pythons warn about forking with threads of libraries; the children do not use these.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

RACES = 20
OVERTAKEN = 20
WON, FENCED = 10, 11
TABLE = to_table(type(REWARD), [REWARD])


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "a"
    Journal.create(folder, {}).close()
    return folder


def fork(job: Callable[[], int]) -> int:
    """Run `job` in a child that exits with the result of `job`; return the child's id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = job()
        finally:
            os._exit(code)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def contend(folder: Path, orders: int, reports: int) -> int:
    """Try to lock the run on command, report the result, and live until killed."""
    os.read(orders, 1)
    said = b"failed"
    try:
        Journal(folder)
        said = b"W"
    except LockedError:
        said = b"L"
    finally:
        os.write(reports, said)
    signal.pause()
    return 0


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    assert exit_code(child) == -signal.SIGKILL


@pytest.mark.parametrize("races", [RACES, pytest.param(1000, marks=pytest.mark.stress)])
def test_one_of_two_gets_the_run(folder, races):
    orders, reports = os.pipe(), os.pipe()
    for _ in range(races):
        pair = [fork(partial(contend, folder, orders[0], reports[1])) for _ in range(2)]
        os.write(orders[1], b"..")
        assert sorted(os.read(reports[0], 1) + os.read(reports[0], 1)) == sorted(b"WL")
        for child in pair:
            kill(child)
    for handle in (*orders, *reports):
        os.close(handle)
    with closing(Reader(folder)) as reader:
        assert reader.meta("epoch") == str(races + 1)


def hold(folder: Path, ready: int) -> int:
    Journal(folder)
    os.write(ready, b"1")
    signal.pause()
    return 0


def started(folder: Path, job: Callable[[Path, int], int]) -> int:
    """Start a child that locks the run; return its id once it has the lock."""
    read, write = os.pipe()
    child = fork(lambda: job(folder, write))
    os.close(write)
    assert os.read(read, 1) == b"1"
    os.close(read)
    return child


def test_killed_holder_frees_run(folder):
    child = started(folder, hold)
    with pytest.raises(LockedError, match=f"pid {child} "):
        Journal(folder)
    kill(child)
    Journal(folder).close()


def commit(result: Done, folder: Path, ready: int) -> int:
    journal = Journal(folder)
    os.write(ready, b"1")
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        journal.commit([result])
    except FencedError:
        return FENCED
    return WON


def test_overtaken_holder_commits_nothing(folder):
    with closing(Journal(folder)) as journal:
        journal.plan(1, "reward", "identity", lambda: ["k"])
    (part,) = encode_tables([TABLE])
    job = partial(commit, Done(unit="k", parts={"rewards": part}, telemetry={}))
    for _ in range(OVERTAKEN):
        child = started(folder, job)
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        # Somebody deletes the lock file, and then takes the run from its living owner.
        (folder / LOCK).unlink()
        Journal(folder).close()
        os.kill(child, signal.SIGCONT)
        assert exit_code(child) == FENCED
    with closing(Reader(folder)) as reader:
        assert (reader.parts(), reader.is_done("k")) == ([], False)
