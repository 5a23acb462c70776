"""One process holds a run; its death frees the run at once; who was overtaken can write no more.

The contenders are forked, because thousands are needed and each lives for a moment: they open the
journal only after the fork. lpfloop itself never forks; its workers are new programs.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from examples import REWARD
from lpfloop.stores.durable import make_folder
from lpfloop.stores.journal import Done, FencedError, Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lock import LOCK, LockedError
from lpfloop.stores.schemas import to_table
from lpfloop.stores.sealing import write_parts

# Newer Pythons warn of forking beside the threads of libraries; the children use none of these.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

RACES, MANY_RACES = 200, 1000
OVERTAKEN = 100
WON, FENCED = 10, 11
TABLE = to_table(type(REWARD), [REWARD])


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "a"
    Journal.create(folder, {}).close()
    return folder


def fork(job: Callable[[], int]) -> int:
    """Run `job` in a child that exits with what it returns; return the child's id."""
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
    """At each order try to get the run; tell how that went; let it go at the next order."""
    while os.read(orders, 1):
        try:
            journal = Journal(folder)
        except LockedError:
            os.write(reports, b"L")
            os.read(orders, 1)
        else:
            os.write(reports, b"W")
            os.read(orders, 1)
            journal.close()
        os.write(reports, b".")
    return 0


class Contender:
    """A process of its own that contends for a run when it is told to."""

    def __init__(self, folder: Path, others: Sequence["Contender"]) -> None:
        read_orders, self._orders = os.pipe()
        self._reports, write_reports = os.pipe()
        mine = (self._orders, self._reports, *(other._orders for other in others))

        def job() -> int:
            for handle in mine:
                os.close(handle)
            return contend(folder, read_orders, write_reports)

        self._child = fork(job)
        os.close(read_orders)
        os.close(write_reports)

    def go(self) -> None:
        os.write(self._orders, b".")

    def report(self) -> bytes:
        return os.read(self._reports, 1)

    def end(self) -> int:
        os.close(self._orders)
        os.close(self._reports)
        return exit_code(self._child)


@pytest.mark.parametrize("races", [RACES, pytest.param(MANY_RACES, marks=pytest.mark.slow)])
def test_of_two_that_start_at_once_exactly_one_gets_the_run(folder, races):
    one = Contender(folder, [])
    two = Contender(folder, [one])
    wins = Counter[bytes]()
    for number in range(races):
        pair = (one, two) if number % 2 else (two, one)
        for contender in pair:
            contender.go()
        told = one.report() + two.report()
        wins[told] += 1
        for contender in pair:
            contender.go()
        assert one.report() + two.report() == b".."
    assert (one.end(), two.end()) == (0, 0)
    assert set(wins) <= {b"WL", b"LW"}
    assert wins.total() == races
    with closing(Reader(folder)) as reader:
        assert reader.meta("epoch") == str(races + 1)


def hold(folder: Path, ready: int) -> int:
    Journal(folder)
    os.write(ready, b"1")
    signal.pause()
    return 0


def started(folder: Path, job: Callable[[Path, int], int]) -> int:
    """Start a child that holds the run, and return its id when it does."""
    read, write = os.pipe()
    child = fork(lambda: job(folder, write))
    os.close(write)
    assert os.read(read, 1) == b"1"
    os.close(read)
    return child


def test_the_run_of_a_killed_holder_is_free_as_soon_as_it_is_gone(folder):
    for _ in range(20):
        child = started(folder, hold)
        with pytest.raises(LockedError, match=f"pid {child} "):
            Journal(folder)
        os.kill(child, signal.SIGKILL)
        assert exit_code(child) == -signal.SIGKILL
        Journal(folder).close()


def test_a_program_that_the_holder_starts_does_not_keep_the_run(folder):
    journal = Journal(folder)
    program = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,  # so that the lock's own flag alone keeps it from being passed on
    )
    with program:
        assert program.stdout is not None
        program.stdout.readline()
        journal.close()
        Journal(folder).close()
        program.communicate(b"\n")


def planned(folder: Path) -> Callable[[Path, int], int]:
    """Plan a unit and seal its part; return what holds the run, stops, and then commits it."""
    with closing(Journal(folder)) as journal:
        journal.plan(1, "reward", "identity", lambda: ["k"])
    (part,) = write_parts([(make_folder(folder / "parts"), TABLE)])
    result = Done(unit="k", parts={"rewards": part}, telemetry={})
    return partial(commit, result)


def commit(result: Done, folder: Path, ready: int) -> int:
    journal = Journal(folder)
    os.write(ready, b"1")
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        journal.commit([result])
    except FencedError:
        return FENCED
    return WON


def overtake(folder: Path) -> None:
    """Take the run from a living holder, as somebody may who took the lock file away."""
    (folder / LOCK).unlink()
    Journal(folder).close()


def test_a_holder_that_was_stopped_and_overtaken_commits_no_row(folder):
    job = planned(folder)
    codes = list[int]()
    for _ in range(OVERTAKEN):
        child = started(folder, job)
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        overtake(folder)
        os.kill(child, signal.SIGCONT)
        codes.append(exit_code(child))
    assert codes == [FENCED] * OVERTAKEN
    with closing(Reader(folder)) as reader:
        assert (reader.parts(), reader.is_done("k")) == ([], False)


def test_a_holder_that_was_stopped_but_not_overtaken_commits(folder):
    """The counter-proof: it is the overtaking that keeps the row out."""
    job = planned(folder)
    child = started(folder, job)
    os.waitpid(child, os.WUNTRACED)
    with pytest.raises(LockedError):
        Journal(folder)
    os.kill(child, signal.SIGCONT)
    assert exit_code(child) == WON
    with closing(Reader(folder)) as reader:
        assert (len(reader.parts()), reader.is_done("k")) == (1, True)
