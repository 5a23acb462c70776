"""A run's units are planned once, done once, and visible only when committed."""

import multiprocessing
import os
import sqlite3
import subprocess
import sys

import pytest
from examples import CANDIDATE, PROMPT, REWARD
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.stores.journal import (
    FencedError,
    Journal,
    JournalError,
    LockedError,
    Reader,
)
from lpfloop.stores.lake import RunNameError, RunReader, RunWriter, run_folder, run_names
from lpfloop.stores.records import Candidate, Prompt, Reward


@pytest.fixture
def folder(tmp_path):
    return run_folder(tmp_path / "lake", "a")


@pytest.fixture
def writer(folder):
    writer = RunWriter(Journal.create(folder, {"config": "{}"}))
    yield writer
    writer.close()


def test_a_committed_unit_is_read_back_and_an_uncommitted_one_is_not(writer):
    units = writer.journal.plan(1, "sample", ["k0", "k1"])
    writer.commit("k1", {Candidate: [CANDIDATE]}, {"tokens": 2})
    assert [unit.chunk for unit in units] == [0, 1]
    assert writer.journal.done(1, "sample") == {"k1"}
    assert writer.rows(Candidate, "k1") == [CANDIDATE]
    with pytest.raises(JournalError, match="no candidates"):
        writer.rows(Candidate, "k0")


def test_readers_see_rows_in_the_order_of_the_plan(writer, folder):
    writer.journal.plan(1, "prompts", ["k0", "k1"])
    second = Prompt(**{**_fields(PROMPT), "prompt_id": "prompt-2"})
    writer.commit("k1", {Prompt: [second]}, {})
    writer.commit("k0", {Prompt: [PROMPT]}, {})
    reader = RunReader(folder)
    assert reader.scan("prompts").collect()["prompt_id"].to_list() == ["prompt-1", "prompt-2"]
    assert reader.scan("pairs").collect().height == 0
    reader.close()


def _fields(row):
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def test_a_unit_is_done_once_and_the_first_result_stays(writer):
    writer.journal.plan(1, "reward", ["k"])
    writer.commit("k", {Reward: [REWARD]}, {})
    other = Reward(**{**_fields(REWARD), "score": 9.0, "status": "scored"})
    writer.commit("k", {Reward: [other]}, {})
    assert writer.rows(Reward, "k") == [REWARD]


def test_planning_again_changes_nothing_and_another_plan_is_refused(writer):
    writer.journal.plan(1, "sample", ["k0", "k1"])
    writer.commit("k0", {Candidate: [CANDIDATE]}, {})
    writer.journal.plan(1, "sample", ["k0", "k1"])
    assert writer.journal.done(1, "sample") == {"k0"}
    with pytest.raises(JournalError, match="other inputs"):
        writer.journal.plan(1, "sample", ["k0", "k2"])


@settings(max_examples=15, deadline=None)
@given(planned=st.integers(1, 6), shares=st.lists(st.integers(0, 3), max_size=3))
def test_however_often_a_run_is_interrupted_each_unit_is_paid_once(
    tmp_path_factory, planned, shares
):
    folder = run_folder(tmp_path_factory.mktemp("lake"), "a")
    keys = [f"k{n}" for n in range(planned)]
    paid = []
    Journal.create(folder, {}).close()
    for share in (*shares, planned):
        writer = RunWriter(Journal(folder))
        units = writer.journal.plan(1, "reward", keys)
        done = writer.journal.done(1, "reward")
        for key in [u.key for u in units if u.key not in done][:share]:
            writer.commit(key, {Reward: [REWARD]}, {})
            paid.append(key)
        writer.close()
    assert sorted(paid) == keys
    reader = RunReader(folder)
    assert reader.scan("rewards").collect().height == len(keys)
    reader.close()


def test_a_second_process_can_not_take_the_run(writer, folder):
    code = (
        "import sys; from pathlib import Path\n"
        "from lpfloop.stores.journal import Journal, LockedError\n"
        "try: Journal(Path(sys.argv[1]))\n"
        "except LockedError as error: print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert f"pid {os.getpid()}" in told.stdout


def _die_holding(folder):
    Journal(folder)
    os._exit(9)


def test_the_lock_of_a_dead_process_is_free_at_once(writer, folder):
    writer.close()
    child = multiprocessing.get_context("spawn").Process(target=_die_holding, args=(folder,))
    child.start()
    child.join()
    assert child.exitcode == 9
    Journal(folder).close()
    writer.journal = Journal(folder)


def test_an_overtaken_holder_can_not_commit(writer, folder):
    writer.journal.plan(1, "reward", ["k"])
    other = sqlite3.connect(folder / "journal.sqlite")
    other.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
    other.commit()
    other.close()
    with pytest.raises(FencedError):
        writer.commit("k", {Reward: [REWARD]}, {})
    assert writer.journal.done(1, "reward") == frozenset()


@pytest.mark.parametrize("what", ["journal", "schema"])
def test_a_lake_of_a_newer_version_is_refused(writer, folder, what):
    db = sqlite3.connect(folder / "journal.sqlite")
    if what == "journal":
        db.execute("PRAGMA user_version = 99")
    else:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    db.commit()
    db.close()
    with pytest.raises(JournalError, match="upgrade lpfloop"):
        Reader(folder)


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "/abs", "", "A", ".hidden", "x" * 65, "a\0b", "a b"]
)
def test_run_names_can_not_leave_the_lake(tmp_path, name):
    with pytest.raises(RunNameError, match="not allowed"):
        run_folder(tmp_path, name)


def test_the_run_written_last_comes_last(tmp_path):
    for name in ("b", "a"):
        Journal.create(run_folder(tmp_path, name), {}).close()
    os.utime(run_folder(tmp_path, "b") / "journal.sqlite", ns=(1, 1))
    assert run_names(tmp_path) == ["b", "a"]


def test_two_holders_in_one_process_are_refused_too(writer, folder):
    with pytest.raises(LockedError):
        Journal(folder)
